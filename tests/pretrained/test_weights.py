"""Weights from files, publishers and MLflow; what does not fit is named, what holds code is refused."""

import pickle
import urllib.error

import pytest
import torch
from safetensors.torch import save_file

from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.pretrained import find_model, load_weights, read_weights
from tests.tiny_networks import TINY, saved_state, tiny


class Trap:
    """Unpickling it would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def loaded(path, **options):
    network = tiny(**options)
    load_weights(network, read_weights(str(path), model=find_model(TINY)), model=TINY, head="head")
    return network.state_dict()


@pytest.mark.parametrize("form", ["plain", "nested", "parallel", "compiled"])
def test_checkpoints_as_people_save_them(tmp_path, form):
    state = saved_state()
    wrapped = {
        "plain": state,
        "nested": {"epoch": 3, "state_dict": state},
        "parallel": {f"module.{name}": value for name, value in state.items()},
        "compiled": {"model": {f"_orig_mod.{name}": value for name, value in state.items()}},
    }
    torch.save(wrapped[form], tmp_path / "net.pth")
    found = loaded(tmp_path / "net.pth")
    assert all(torch.equal(found[name], value) for name, value in state.items())


def test_safetensors_with_and_without_a_header(tmp_path):
    state, inputs = saved_state(), Inputs(3, 16, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    save_file(state, tmp_path / "a.safetensors")
    save_file(state, tmp_path / "b.safetensors", metadata=inputs.metadata(("cat", "dog")))
    plain, declared = (read_weights(str(tmp_path / f"{name}.safetensors"), model=find_model(TINY)) for name in "ab")
    assert (plain.inputs, declared.inputs) == (None, inputs)
    assert plain.digest == declared.digest
    other = {**state, "head.bias": state["head.bias"] + 1}
    save_file(other, tmp_path / "c.safetensors")
    assert read_weights(str(tmp_path / "c.safetensors"), model=find_model(TINY)).digest != plain.digest


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_code_in_a_file_is_refused_and_not_run(tmp_path, how):
    path, trap = tmp_path / "net.pth", {"head.weight": torch.zeros(1), "extra": Trap(tmp_path / "sprung")}
    if how == "torch":
        torch.save(trap, path)
    else:
        path.write_bytes(pickle.dumps(trap))
    with pytest.raises(InputError, match=r"net\.pth is refused: it holds more than tensors") as raised:
        read_weights(str(path), model=find_model(TINY))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "holds a list; save the state_dict"),
        ({}, "holds a dict; save the state_dict"),
        ({"a": 1}, "'a' is a int, not a tensor"),
    ],
)
def test_checkpoints_without_tensors(tmp_path, content, message):
    torch.save(content, tmp_path / "net.pth")
    with pytest.raises(InputError, match=message):
        read_weights(str(tmp_path / "net.pth"), model=find_model(TINY))


def test_other_classes_in_the_head_are_fine_another_network_is_not(tmp_path):
    torch.save(saved_state(classes=4), tmp_path / "four.pth")
    found, four = loaded(tmp_path / "four.pth"), saved_state(classes=4)
    assert found["head.weight"].shape == (7, 8)
    assert torch.equal(found["second.weight"], four["second.weight"])
    torch.save(saved_state(width=5), tmp_path / "narrow.pth")
    with pytest.raises(InputError) as raised:
        loaded(tmp_path / "narrow.pth")
    assert "holds no weights of tests.tiny_networks:tiny: first.weight is 5x3x5x5 there and 6x3x5x5 here" in str(
        raised.value
    )
    renamed = {name.replace("second", "conv2"): value for name, value in saved_state().items()}
    torch.save(renamed, tmp_path / "other.pth")
    with pytest.raises(
        InputError, match=r"'second\.weight' is missing; 'conv2\.weight' is not in the network \(and 2 more\)"
    ):
        loaded(tmp_path / "other.pth")


def test_files_of_old_torch_have_no_counters(tmp_path):
    state = {name: value for name, value in saved_state().items() if "num_batches" not in name}
    torch.save(state, tmp_path / "old.pth")
    assert torch.equal(loaded(tmp_path / "old.pth")["norm.running_var"], state["norm.running_var"])


@pytest.mark.parametrize(
    ("source", "model", "message"),
    [
        ("no/such.pth", "resnet18", "no weights file 'no/such.pth'; check the path"),
        (
            "IMAGENET1K_V3",
            "resnet18",
            "unknown weights of resnet18: 'IMAGENET1K_V3'; known: DEFAULT, IMAGENET1K_V1",
        ),
        ("a9_in1k", "timm/resnet18", "unknown weights of timm/resnet18: 'a9_in1k'; did you mean 'a[123]_in1k'"),
        ("DEFAULT", "mnist_conv", "no weights are published with mnist_conv"),
        ("DEFAULT", TINY, "no weights are published with tests.tiny_networks:tiny"),
        ("DEFAULT", "timm/resnet18", "cannot download resnet18: ARELU_META_OFFLINE is set; fetch it elsewhere"),
    ],
)
def test_wrong_sources(monkeypatch, tmp_path, source, model, message):
    monkeypatch.setenv("ARELU_META_OFFLINE", "1")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(InputError, match=message):
        read_weights(source, model=find_model(model))


def test_a_failed_download_is_one_line(monkeypatch, tmp_path):
    def fail(*_args, **_options):
        raise urllib.error.URLError("no route to host")

    monkeypatch.delenv("ARELU_META_OFFLINE", raising=False)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    with pytest.raises(
        InputError, match=r"cannot download https://download\.pytorch\.org/models/resnet18-.*no route"
    ) as r:
        read_weights("DEFAULT", model=find_model("resnet18"))
    assert "\n" not in str(r.value)


def test_published_weights_that_are_in_the_cache_need_no_network(monkeypatch, tmp_path):
    monkeypatch.setenv("ARELU_META_OFFLINE", "1")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    torch.save({"fc.bias": torch.ones(3)}, tmp_path / "checkpoints" / "resnet18-f37072fd.pth")
    assert read_weights("IMAGENET1K_V1", model=find_model("resnet18")).state["fc.bias"].tolist() == [1, 1, 1]


def test_weights_with_parameters_of_another_activation_say_how_to_build_for_them(tmp_path):
    """Each kind of misfit is told once."""
    torch.save(
        {**saved_state(), "act1.alpha": torch.tensor(0.9), "act1.beta": torch.tensor(2.0)}, tmp_path / "arelu.pth"
    )
    with pytest.raises(InputError) as raised:
        loaded(tmp_path / "arelu.pth")
    hint = "'act1.alpha' is not in the network (and 1 more); for another activation of its own, `model_options`"
    assert str(raised.value).count("act1.alpha") == 1
    assert hint in str(raised.value)
