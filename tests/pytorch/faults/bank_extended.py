"""A memory bank gets longer, beside a window of bounded length."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


class Bank:
    def __init__(self):
        self.keys = torch.zeros(0, 256, device=DEVICE)
        self.recent = torch.zeros(0, 256, device=DEVICE)

    def add(self, x):
        longer = torch.cat(
            [
                self.keys,
                x,
            ],
            dim=0,
        )
        self.keys = longer  # fault
        self.recent = torch.cat([self.recent, x])[-500:]


def main():
    model, bank = Net().to(DEVICE), Bank()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in steps():
        output = model(batch())
        train(optimizer, loss_of(output))
        bank.add(output.detach())


main()
