"""Past gradients are kept in an attribute of each parameter."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for parameter in model.parameters():
        parameter.past = []
    for _ in steps():
        train(optimizer, loss_of(model(batch())))
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.past.append(parameter.grad.clone())  # fault


main()
