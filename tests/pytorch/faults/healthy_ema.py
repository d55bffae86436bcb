"""An average copy of the model, and a queue of bounded length."""

import copy
from collections import deque

import torch
from common import DEVICE, Net, batch, loss_of, steps, train


def main():
    model = Net().to(DEVICE)
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters())
    last = deque(maxlen=40)
    for _ in steps():
        output = model(batch())
        train(optimizer, loss_of(output))
        last.append(output.detach())
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters()):
                slow.lerp_(fast, 0.01)


main()
