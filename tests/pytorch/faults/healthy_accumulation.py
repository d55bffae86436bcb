"""Gradient accumulation, and a running loss that is detached."""

import torch
from common import DEVICE, Net, batch, loss_of, steps


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    running = torch.zeros((), device=DEVICE)
    for step in steps():
        loss = loss_of(model(batch())) / 8
        loss.backward()
        running += loss.detach()
        if step % 8 == 7:
            optimizer.step()
            optimizer.zero_grad()


main()
