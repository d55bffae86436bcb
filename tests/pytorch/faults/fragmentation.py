"""Ever larger blocks of new shapes: the free ones are too small for the next."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in steps():
        train(optimizer, loss_of(model(batch())))
        # Each is 2 MiB larger than the one before, so that it fits nowhere.
        longer = torch.empty((12 + 2 * min(step // 4, 60)) << 18, device=DEVICE)  # fault
        del longer


main()
