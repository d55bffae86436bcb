"""A new optimizer for each round, and the old ones stay in a list."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model = Net().to(DEVICE)
    optimizers = []
    for step in steps():
        if step % 5 == 0:
            optimizers.append(torch.optim.Adam(model.parameters()))  # fault
        train(optimizers[-1], loss_of(model(batch())))


main()
