"""Outputs of the last steps are kept in a deque of limited length."""

import collections

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    window = collections.deque(maxlen=600)
    for _ in steps():
        output = model(batch())
        train(optimizer, loss_of(output))
        window.append(output.detach())


main()
