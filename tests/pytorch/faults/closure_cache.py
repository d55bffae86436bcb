"""A cache in a closure has a new key in each step."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def cached(function):
    cache = {}

    def call(key, x):
        if key not in cache:
            cache[key] = function(x)  # fault
        return cache[key]

    return call


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    encode = cached(torch.sin)
    for step in steps():
        x = batch()
        train(optimizer, loss_of(model(x + encode(step, x))))


main()
