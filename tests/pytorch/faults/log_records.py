"""A handler of `logging` keeps records, and their arguments are tensors."""

import logging

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


class Keep(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)  # fault


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    log = logging.getLogger("train")
    log.setLevel("INFO")
    log.addHandler(Keep())
    log.propagate = False
    for step in steps():
        output = model(batch())
        loss = loss_of(output)
        train(optimizer, loss)
        log.info("step %d: loss %s, output %s", step, loss.detach(), output.detach())


main()
