"""A tensor is made longer with each step."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    history = torch.zeros(0, 256, device=DEVICE)
    for _ in steps():
        output = model(batch())
        train(optimizer, loss_of(output))
        history = torch.cat([history, output.detach()])  # fault


main()
