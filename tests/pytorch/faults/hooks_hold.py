"""A forward hook stores activations."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    features = []

    def store(module, inputs, output):
        features.append(output)  # fault

    model.norm.register_forward_hook(store)
    for _ in steps():
        train(optimizer, loss_of(model(batch())))


main()
