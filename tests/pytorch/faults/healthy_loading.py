"""A model moves to the GPU layer by layer, as from a slow disk."""

import time

import torch
from common import DEVICE, batch, steps


def main():
    layers = torch.nn.ModuleList([torch.nn.Linear(256, 256, bias=False) for _ in range(400)])
    x = batch()
    for _, layer in zip(steps(), layers):
        layer.to(DEVICE)
        time.sleep(0.05)
    for _ in steps():
        x = batch()


main()
