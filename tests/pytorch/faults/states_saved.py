"""A search for the learning rate saves the weights on the GPU."""

import copy

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


class Finder:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.trials = model, optimizer, []

    def run(self):
        for step in steps():
            train(self.optimizer, loss_of(self.model(batch())))
            if step % 3 == 0:
                self.trials.append(  # fault
                    {"step": step, "weights": copy.deepcopy(self.model.state_dict())}
                )


def main():
    model = Net().to(DEVICE)
    Finder(model, torch.optim.SGD(model.parameters(), lr=0.01)).run()


main()
