"""A running mean is updated inside the graph."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


class Normalized(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.register_buffer("running", torch.zeros(256))

    def forward(self, x):
        y = self.net(x)
        self.running = 0.9 * self.running + 0.1 * torch.tanh(y).mean(0)  # fault
        return y


def main():
    model = Normalized().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in steps():
        train(optimizer, loss_of(model(batch())))


main()
