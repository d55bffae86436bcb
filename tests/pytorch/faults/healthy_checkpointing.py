"""Activation checkpointing."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train
from torch.utils.checkpoint import checkpoint


def main():
    layers = torch.nn.ModuleList([Net() for _ in range(4)]).to(DEVICE)
    optimizer = torch.optim.AdamW(layers.parameters())
    for _ in steps():
        x = batch()
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False)
        train(optimizer, loss_of(x))


main()
