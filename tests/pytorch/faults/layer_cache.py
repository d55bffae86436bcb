"""A layer caches its inputs."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


class LeakyLayer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(256, 256, bias=False)
        self.cache = []

    def forward(self, x):
        self.cache.append(x)  # fault
        return self.linear(x)


def main():
    model = torch.nn.Sequential(Net(), LeakyLayer(), Net()).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in steps():
        train(optimizer, loss_of(model(batch())))


main()
