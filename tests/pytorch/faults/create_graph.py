"""backward(create_graph=True) keeps parameters and gradients in a cycle."""

import gc
import warnings

from common import DEVICE, Net, batch, loss_of, steps

warnings.simplefilter("ignore")
gc.disable()


def main():
    for _ in steps():
        model = Net().to(DEVICE)
        loss_of(model(batch())).backward(create_graph=True)  # fault
        penalty = sum(parameter.grad.square().sum() for parameter in model.parameters())
        penalty.backward()


main()
