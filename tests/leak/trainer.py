"""The memory of a training loop: batches of different lengths, and a loss whose history is kept
(leak) or not (twin).

    python3 tests/leak/trainer.py leak|twin SECONDS

A step takes a tenth of a second and allocates half a megabyte, which the twin frees. In both, an
evaluation every 300 steps uses more memory for a while.
"""

import random
import sys
import time

STEP = 1 << 19
BATCH = 48 << 20


def pages(size):
    """Allocates resident memory: writes to each page."""
    block = bytearray(size)
    block[::4096] = b"x" * len(range(0, size, 4096))
    return block


def main(leaks, seconds):
    lengths = random.Random(7)
    model = pages(200 << 20)
    history = []
    until = time.monotonic() + seconds
    step = 0
    while time.monotonic() < until:
        batch = pages(int(BATCH * lengths.uniform(0.3, 1.0)))
        history.append(pages(STEP))
        if not leaks:
            history = history[-4:]
        if step % 300 < 20:
            evaluation = pages(64 << 20)
            del evaluation
        time.sleep(0.08)
        del batch
        step += 1
    return model


if __name__ == "__main__":
    main(sys.argv[1] == "leak", float(sys.argv[2]))
