import hashlib

import torch

from arelu_meta.seeding import generator, global_stream, stream_seed


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
