"""Outputs are kept in a list."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    outputs = []
    for _ in steps():
        output = model(batch())
        loss = loss_of(output)
        train(optimizer, loss)
        outputs.append(output)  # fault


main()
