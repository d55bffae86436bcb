"""Trains in worker processes, for gate_check.py. Arguments: `leak` or `healthy`, and how the
workers start or end.
"""

import multiprocessing
import os
import signal
import sys
import time

STEPS = 150


def train(keep, steps=STEPS):
    import torch

    model = torch.nn.Linear(64, 64, bias=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    kept, losses = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        output = model(torch.randn(32, 64, device="cuda"))
        loss = output.square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if keep:
            kept.append(output)
        time.sleep(0.005)


def main():
    keep = sys.argv[1] == "leak"
    for way in sys.argv[2:]:
        if way in ("fork", "spawn"):
            context = multiprocessing.get_context(way)
            workers = [
                context.Process(target=train, args=(keep and number == 1,)) for number in range(2)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        elif way == "short":
            train(keep, 5)
        elif way == "os._exit":
            train(keep)
            os._exit(0)
        elif way == "kill":
            train(keep)
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
