"""Exceptions are kept, and their tracebacks hold the locals of the frames."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def risky(model, optimizer):
    x = batch()
    output = model(x)
    loss = loss_of(output)
    train(optimizer, loss)
    raise ValueError("bad batch")


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    errors = []
    for _ in steps():
        try:
            risky(model, optimizer)
        except ValueError as error:
            errors.append(error)  # fault


main()
