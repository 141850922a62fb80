import pytest
import torch

from arelu_meta.errors import InputError
from arelu_meta.runtime.device import resolve_device


def test_cpu():
    assert resolve_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(("present", "kind"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_a_gpu_when_there_is_one(monkeypatch: pytest.MonkeyPatch, present: bool, kind: str):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present)
    assert resolve_device("auto").type == kind


@pytest.mark.parametrize("name", ["cudda", "", "cpu:x", "meta", "cuda:99"])
def test_absent_devices_name_the_present_ones(name: str):
    with pytest.raises(InputError, match=f"device '{name}' is not available here; use --device cpu") as raised:
        resolve_device(name)
    assert "\n" not in str(raised.value)
