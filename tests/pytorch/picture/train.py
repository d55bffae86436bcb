"""A training program of the README that leaks: a list keeps each output."""

import time

import torch

WIDTH, ROWS = 2048, 4096


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def train_step(model, optimizer, x):
    output = model(x)
    loss = (output - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.25)
    return output.detach().clone()


def main():
    model = torch.nn.Sequential(*[Block() for _ in range(12)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    outputs = []
    while True:
        x = torch.randn(ROWS, WIDTH, device="cuda")
        outputs.append(train_step(model, optimizer, x))


main()
