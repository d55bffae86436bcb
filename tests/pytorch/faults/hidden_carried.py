"""The hidden state of a recurrent network is carried from batch to batch with its history."""

import torch
from common import DEVICE, batch, loss_of, steps, train


class Cell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(256, 256, bias=False)
        self.outer = torch.nn.Linear(256, 256, bias=False)

    def forward(self, x, hidden):
        return torch.tanh(self.inner(x) + self.outer(hidden))


def main():
    cell, head = Cell().to(DEVICE), torch.nn.Linear(256, 256, bias=False).to(DEVICE)
    optimizer = torch.optim.AdamW(head.parameters())
    hidden = torch.zeros(64, 256, device=DEVICE)
    for _ in steps():
        hidden = cell(batch(), hidden)  # fault
        train(optimizer, loss_of(head(hidden.detach())))


main()
