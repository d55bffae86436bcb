"""A server loads one more adapter for each request and drops none."""

import torch
from common import DEVICE, batch, steps


class Adapted(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.adapters, self.active = base, torch.nn.ModuleDict(), None

    def add(self, name, rank=64):
        down = torch.nn.Linear(256, rank, bias=False)
        up = torch.nn.Linear(rank, 256, bias=False)
        self.adapters[name] = torch.nn.Sequential(down, up).to(DEVICE)  # fault
        self.active = name

    def forward(self, x):
        return self.base(x) + self.adapters[self.active](x)


@torch.no_grad()
def main():
    layers = [Adapted(torch.nn.Linear(256, 256, bias=False)) for _ in range(4)]
    model = torch.nn.Sequential(*layers).to(DEVICE).eval()
    for step in steps():
        for layer in model:
            layer.add("user%d" % step)
        model(batch())


main()
