"""Batches of variable length."""

import random

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    random.seed(1)
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in steps():
        rows = random.randint(16, 512)
        x = batch(rows)
        output = model(x)
        loss = loss_of(output)
        train(optimizer, loss)


main()
