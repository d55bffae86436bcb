"""Validation every few steps keeps activations by step."""

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


class Trainer:
    def __init__(self):
        self.model = Net().to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.activations = {}

    def fit(self):
        for step in steps():
            train(self.optimizer, loss_of(self.model(batch())))
            if step % 5 == 0:
                self.validate(step)

    @torch.no_grad()
    def validate(self, step):
        self.activations[step] = [self.model.first(batch()) for _ in range(3)]  # fault


Trainer().fit()
