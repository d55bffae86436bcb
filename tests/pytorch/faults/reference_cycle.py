"""Objects in cycles hold tensors, and the garbage collector is off."""

import gc

import torch
from common import DEVICE, Net, batch, loss_of, steps, train

gc.disable()


class Node:
    def __init__(self, value, parent=None):
        self.value, self.children, self.parent = value, [], parent
        if parent is not None:
            parent.children.append(self)  # fault


def main():
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in steps():
        x = batch()
        output = model(x)
        root = Node(output.detach())
        Node(x, root)
        train(optimizer, loss_of(output))


main()
