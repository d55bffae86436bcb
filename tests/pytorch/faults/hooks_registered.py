"""A hook is registered again in each step, and its defaults hold the batch."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in steps():
        x = batch()
        model.norm.register_forward_hook(lambda module, inputs, output, x=x: None)  # fault
        train(optimizer, loss_of(model(x)))


main()
