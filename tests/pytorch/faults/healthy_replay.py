"""A replay buffer that fills up to a bound."""

import random
from collections import deque

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model, memory = Net().to(DEVICE), deque(maxlen=100)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in steps():
        memory.append((batch(1), torch.zeros((), device=DEVICE)))
        chosen = [memory[random.randrange(len(memory))][0] for _ in range(32)]
        train(optimizer, loss_of(model(torch.cat(chosen))))


main()
