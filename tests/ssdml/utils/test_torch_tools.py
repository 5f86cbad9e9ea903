"""Devices, threads and modes of torch."""

from __future__ import annotations

import pytest
import torch

from ssdml.utils.torch_tools import (
    evaluating,
    find_device,
    has_bfloat16,
    one_thread,
    trains_in_bfloat16,
)


def test_threads_are_given_back_after_an_error():
    before = torch.get_num_threads()

    def fail():
        with one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == before


def test_evaluating_restores_the_mode():
    network = torch.nn.Sequential(torch.nn.Dropout())
    for training in (True, False):
        network.train(training)
        with evaluating(network):
            assert not network[0].training
        assert network[0].training is training
        with pytest.raises(RuntimeError, match="stop"), evaluating(network):
            raise RuntimeError("stop")
        assert network[0].training is training


def test_a_gpu_has_bfloat16_since_ampere(monkeypatch):
    for capability, expected in (((7, 5), False), ((8, 0), True), ((9, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, c=capability: c)
        assert has_bfloat16("cuda:1") is expected
    assert not has_bfloat16("cpu")


def test_mixed_precision_warns_on_a_gpu_without_bfloat16(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert not trains_in_bfloat16("auto", "cuda")
    assert not trains_in_bfloat16(False, "cuda")
    with pytest.warns(UserWarning, match="got True on 'cuda'. Pass mixed_precision='auto'"):
        assert trains_in_bfloat16(True, "cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    assert trains_in_bfloat16(True, "cuda")


def test_finds_the_named_device(monkeypatch):
    assert find_device("cpu", "SSDML") == "cpu"
    for found, expected in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda found=found: found)
        assert find_device("auto", "SSDML") == expected


def test_rejects_an_unavailable_device(monkeypatch):
    with pytest.raises(ValueError, match="got 'meta'"):
        find_device("meta", "SSDML")
    for name in ("gpu", "mps", "xpu:3"):  # none of which this machine may have
        monkeypatch.setattr(torch, "zeros", lambda *shape, **options: _refuse())
        with pytest.raises(ValueError, match=rf"one that torch finds; got '{name}'. Pass 'auto'"):
            find_device(name, "SSDML")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [find_device(name, "SSDML") for name in ("cuda", "cuda:1")] == ["cuda", "cuda:1"]
    with pytest.raises(ValueError, match="got 'cuda:2'"):
        find_device("cuda:2", "SSDML")


def _refuse():
    raise RuntimeError("no such device")
