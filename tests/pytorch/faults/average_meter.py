"""A meter gets losses with their history."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


class AverageMeter:
    def __init__(self):
        self.sum = self.count = self.average = 0

    def update(self, value, n=1):
        self.sum += value * n  # fault
        self.count += n
        self.average = self.sum / self.count


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    losses = AverageMeter()
    for _ in steps():
        loss = loss_of(model(batch()))
        losses.update(loss, 64)
        train(optimizer, loss)


main()
