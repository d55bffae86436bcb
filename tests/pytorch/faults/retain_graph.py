"""backward(retain_graph=True) while the losses are kept for a plot."""

import torch
from common import DEVICE, Net, batch, loss_of, steps


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in steps():
        loss = loss_of(model(batch()))
        optimizer.zero_grad()
        loss.backward(retain_graph=True)  # fault
        optimizer.step()
        losses.append(loss)


main()
