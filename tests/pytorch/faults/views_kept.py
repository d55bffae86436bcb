"""One row of each batch is kept for a report: the view keeps the whole batch."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    examples = []
    for step in steps():
        x = batch()
        train(optimizer, loss_of(model(x)))
        if step % 4 == 0:
            examples.append(x[0])  # fault


main()
