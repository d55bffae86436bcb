"""Each epoch collects the predictions of its evaluation and drops them."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


@torch.no_grad()
def evaluate(model):
    predictions = []
    for _ in steps(8):
        predictions.append(model(batch()))
    return torch.cat(predictions).mean()


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in steps():
        train(optimizer, loss_of(model(batch())))
        if step % 100 == 99:
            evaluate(model)


main()
