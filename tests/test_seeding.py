import hashlib

import pytest
import torch

from arelu_meta.seeding import (
    forked_generators,
    generator,
    generator_states,
    global_stream,
    restore_generators,
    stream_seed,
)


def test_seed_of_a_stream():
    """The first 64 bits of SHA-256 of `seed/stream`, less the lowest."""
    digest = hashlib.sha256(b"3/weights").hexdigest()
    assert stream_seed(3, "weights") == int(digest[:16], 16) // 2
    assert 0 <= stream_seed(3, "weights") < 2**63


def test_streams_and_seeds_differ():
    seeds = {stream_seed(seed, stream) for seed in range(50) for stream in ("weights", "episodes/train", "a", "b")}
    assert len(seeds) == 200


def test_same_name_same_numbers():
    draws = [torch.rand(4, generator=generator(0, name)) for name in ("a", "a", "b")]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_one_stream_does_not_shift_another():
    a, b = generator(0, "a"), generator(0, "b")
    torch.rand(100, generator=a)
    assert torch.equal(torch.rand(3, generator=b), torch.rand(3, generator=generator(0, "b")))


def test_global_stream_is_restored():
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    with global_stream(0, "weights"):
        inside = torch.rand(2)
    assert torch.equal(torch.rand(2), expected)
    with global_stream(0, "weights"):
        assert torch.equal(torch.rand(2), inside)


class FakeGpus:
    """Two GPUs of which one is in use: their generators are numbers, and asking for another one is an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, initialised: bool) -> None:
        self.state = torch.tensor([7])
        for name, replacement in {
            "is_available": lambda: True,
            "is_initialized": lambda: initialised,
            "device_count": lambda: 2,
            "current_device": lambda: 1,
            "get_rng_state": self.get,
            "set_rng_state": self.put,
        }.items():
            monkeypatch.setattr(torch.cuda, name, replacement)

    def get(self, device: int | torch.device) -> torch.Tensor:
        assert getattr(device, "index", device) == 1
        return self.state.clone()

    def put(self, state: torch.Tensor, device: int | torch.device) -> None:
        assert getattr(device, "index", device) == 1
        self.state = state


def test_the_gpu_in_use_is_forked_and_no_other(monkeypatch: pytest.MonkeyPatch):
    gpus = FakeGpus(monkeypatch, initialised=True)
    with forked_generators():
        gpus.state = torch.tensor([8])
    assert gpus.state.item() == 7


def test_checkpoints_keep_the_generator_of_the_gpu(monkeypatch: pytest.MonkeyPatch):
    gpus = FakeGpus(monkeypatch, initialised=True)
    states = generator_states()
    expected = torch.rand(2)
    gpus.state = torch.tensor([8])
    restore_generators(states)
    assert torch.equal(torch.rand(2), expected)
    assert gpus.state.item() == 7
    gpus.state = torch.tensor([9])
    restore_generators({"global_random": states["global_random"]})  # of a checkpoint that a CPU has written
    assert gpus.state.item() == 9


def test_a_gpu_that_is_not_used_is_not_opened(monkeypatch: pytest.MonkeyPatch):
    gpus = FakeGpus(monkeypatch, initialised=False)
    gpus.state = None  # asking for it would be an error
    assert list(generator_states()) == ["global_random"]
    with forked_generators():
        pass
