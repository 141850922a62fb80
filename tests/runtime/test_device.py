import pytest
import torch

from arelu_meta.errors import InputError
from arelu_meta.runtime.device import resolve_device, threads


def test_cpu():
    assert resolve_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(("present", "kind"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_a_gpu_when_there_is_one(monkeypatch: pytest.MonkeyPatch, present: bool, kind: str):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present)
    assert resolve_device("auto").type == kind


@pytest.mark.parametrize("name", ["cudda", "", "cpu:x", "meta", "cuda:99"])
def test_absent_devices_name_the_present_ones(name: str):
    with pytest.raises(InputError, match=f"device '{name}' is not available here; set `device` to cpu") as raised:
        resolve_device(name)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("asked", "inside"), [(3, 3), (0, 2)])
def test_threads_are_set_for_a_while(asked: int, inside: int):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads(asked):
            assert torch.get_num_threads() == inside
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
