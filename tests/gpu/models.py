"""Six models of different kinds for `gputop estimate`, each with the batch it is measured with."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def mlp():
    layers = [it for _ in range(6) for it in (nn.Linear(2048, 2048), nn.GELU())]
    return nn.Sequential(*layers), torch.zeros(4096, 2048)


def convolutions():
    def block(inside, outside):
        return [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU()]

    net = nn.Sequential(
        *block(3, 64),
        *block(64, 64),
        nn.MaxPool2d(2),
        *block(64, 128),
        *block(128, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 1000),
    )
    return net, torch.zeros(32, 3, 128, 128)


def transformer():
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    return nn.TransformerEncoder(layer, 6), torch.zeros(16, 256, 512)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(256, 512, 2, batch_first=True), nn.Linear(512, 256)

    def forward(self, x):
        return self.last(self.lstm(x)[0])


def recurrent():
    return Recurrent(), torch.zeros(64, 128, 256)


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(32000, 512), nn.Linear(512, 32000)

    def forward(self, x):
        return self.last(self.words(x))


def embeddings():
    return Embeddings(), torch.zeros(8, 256, dtype=torch.long)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)
        )

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def checkpointed():
    return Checkpointed(), torch.zeros(2048, 1024, requires_grad=True)
