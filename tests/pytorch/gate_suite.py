"""Tests of pytest, which gate_check.py runs."""

import time

import pytest
import torch

kept = []


@pytest.fixture
def model():
    return torch.nn.Linear(256, 256, bias=False).cuda()


def step(model, optimizer):
    optimizer.zero_grad()
    output = model(torch.randn(64, 256, device="cuda"))
    output.square().mean().backward()
    optimizer.step()
    return output


@pytest.mark.parametrize("number", range(40))
def test_healthy(number, model):
    optimizer = torch.optim.AdamW(model.parameters())
    before = model.weight.detach().clone()
    for _ in range(number % 7):
        step(model, optimizer)
    assert number % 7 == 0 or not torch.equal(before, model.weight)


@pytest.mark.parametrize("width", [2 ** (number % 9) for number in range(30)])
def test_healthy_forward(width):
    inputs = torch.ones(width, width, device="cuda")
    outputs = [inputs * number for number in range(10)]
    assert outputs[-1].shape == (width, width)


@pytest.mark.parametrize("number", range(60))
def test_kept_over_tests(number, model):
    kept.append(model(torch.randn(64, 256, device="cuda")).detach())


def test_kept_in_a_test(model):
    optimizer = torch.optim.AdamW(model.parameters())
    outputs = []
    for _ in range(200):
        outputs.append(step(model, optimizer))
        time.sleep(0.005)
