"""A deep copy of the model stays on the GPU every few steps, as for weight averaging."""

import copy

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    snapshots = []
    for step in steps():
        train(optimizer, loss_of(model(batch())))
        if step % 5 == 0:
            snapshots.append(copy.deepcopy(model).eval())  # fault


main()
