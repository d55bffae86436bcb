"""The loss is summed with its history."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    total = 0
    for _ in steps():
        loss = loss_of(model(batch()))
        train(optimizer, loss)
        total += loss  # fault


main()
