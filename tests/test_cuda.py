"""A smoke suite for GPUs: `make test-gpu`. Every kind of run, the number formats, resuming, and two processes.

Without a GPU it is skipped. `ARELU_META_TEST_DEVICE=cpu` runs it on a CPU all the same, which shows that the suite
itself is right, and `ARELU_META_TEST_DEVICE=emulated` on a device that is not the host (`emulated_device.py`), which
shows that no tensors of both are mixed; that is how it was checked where it was written, on a machine without a GPU.
"""

import os
import socket
import subprocess
import sys
from typing import Any

import pytest
import torch
from mlflow import MlflowClient

import arelu_meta
from arelu_meta import kinds
from arelu_meta.estimators import FewShotClassifier
from arelu_meta.kinds.adapt.result import AdaptResult
from arelu_meta.kinds.execution import BatchExecution, Execution
from arelu_meta.kinds.few_shot.model import FewShotModel
from arelu_meta.kinds.sections import Spec
from tests import emulated_device
from tests.supervised_runs import ADAPT, FINETUNE, SEGMENT, TRANSFER, classify_spec, merged
from tests.tiny_model import images, tiny_model
from tests.tiny_runs import MLFLOW_WARNINGS, interrupted_after, tiny_spec

DEVICE = os.environ.get("ARELU_META_TEST_DEVICE", "cuda")
if DEVICE == emulated_device.NAME:
    emulated_device.load()
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.usefixtures("store"),
    MLFLOW_WARNINGS,
    pytest.mark.skipif(
        DEVICE == "cuda" and not torch.cuda.is_available(),
        reason="torch finds no GPU here; ARELU_META_TEST_DEVICE=cpu or =emulated runs the suite without",
    ),
]


def on_device(spec: Spec, **options: Any) -> Any:
    """Run a spec on the device, and make sure that its network and its record say so."""
    execution = BatchExecution(device=DEVICE, **options)
    result = arelu_meta.run(spec, execution)
    if hasattr(result, "network"):
        # What `adapt` gives is on the CPU, wherever it was tuned: a head of scikit-learn's may belong to it.
        expected = "cpu" if isinstance(result, AdaptResult) else DEVICE
        assert {parameter.device.type for parameter in result.network.parameters()} == {expected}
    run = MlflowClient().get_run(result.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["device"].startswith(DEVICE)
    return result


@pytest.mark.skipif(DEVICE == "cpu", reason="the CPU is the host")
def test_tensors_of_the_host_are_not_taken():
    """So that this suite finds them in runs."""
    for operation in (torch.add, torch.mm, torch.equal):
        with pytest.raises(RuntimeError):
            operation(torch.ones(2, 2, device=DEVICE), torch.ones(2, 2))


@pytest.mark.parametrize("engine", ["func", "higher", "learn2learn"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_maml(engine: str, precision: str):
    pytest.importorskip(engine) if engine != "func" else None
    assert 0 <= on_device(tiny_spec(engine=engine, precision=precision)).test.mean <= 1


def test_the_device_finds_the_meta_gradient_of_the_cpu():
    """Six iterations in float32 end with nearly the same scores: the kernels differ, the mathematics does not."""
    spec = tiny_spec(outer_lr=1e-3)
    ours = on_device(spec)
    cpu = arelu_meta.run(spec, Execution(device="cpu"))
    for name, value in cpu.network.state_dict().items():
        torch.testing.assert_close(ours.network.state_dict()[name].cpu(), value, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("method", ["protonet", "mamlpp", "reptile"])
def test_other_methods(method: str):
    on_device(tiny_spec(method=method))


@pytest.mark.parametrize(
    "flags", [{}, {"compile": True}, {"channels_last": True, "fused": True, "tf32": True}], ids=str
)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_classify(flags: dict[str, bool], precision: str):
    if DEVICE == emulated_device.NAME and flags:
        pytest.skip("the emulated device has no compiler and no fused optimizers")
    spec = classify_spec(training={"precision": precision})
    ours, cpu = on_device(spec, **flags), arelu_meta.run(spec, Execution(device="cpu"))
    # Later epochs, and 40 test images, multiply what half precision rounds: 34 and 27 of them were right.
    losses = [first_loss(result.run_id) for result in (ours, cpu)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def first_loss(run_id: str) -> float:
    """Mean training loss of the first epoch."""
    return min(MlflowClient().get_metric_history(run_id, "train/loss"), key=lambda metric: metric.step).value


@pytest.mark.parametrize(
    ("kind", "values"), [("transfer", TRANSFER), ("segment", SEGMENT), ("finetune", FINETUNE), ("adapt", ADAPT)]
)
def test_every_other_kind_of_run(kind: str, values: dict[str, Any]):
    on_device(kinds.entry(kind).spec_class.model_validate(merged(values, {})))


def test_a_deterministic_run_is_resumed_where_it_was():
    """RReLU draws on the device in every step: the generator of the device is in the checkpoint."""
    options = {"device": DEVICE, "deterministic": True}
    spec = tiny_spec(activation="rrelu")
    with pytest.raises(KeyboardInterrupt):
        arelu_meta.run(spec, Execution(**options), bar=interrupted_after(5))
    resumed = arelu_meta.run(spec, Execution(resume=True, **options))
    whole = arelu_meta.run(spec, Execution(**options))
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name]), name


def test_a_few_shot_model_answers_as_on_the_cpu():
    model: FewShotModel = tiny_model()
    labels = ["a", "b", "c", "a", "b", "c"]
    answers = [
        FewShotClassifier(model, device=device).fit(images(6), labels).predict_proba(images(5, seed=1))
        for device in ("cpu", DEVICE)
    ]
    torch.testing.assert_close(*map(torch.from_numpy, answers), rtol=1e-2, atol=1e-3)


def test_two_processes(root: Any, store: Any):
    """Each has a GPU of its own; the gradients are those of one process, so the result is nearly the same."""
    if DEVICE == emulated_device.NAME:
        pytest.skip("processes of a run do not build the emulated device")
    if DEVICE == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU, and NCCL wants one for each process")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = "--iterations 2 --meta-batch 4 --inner-steps 1 --test-episodes 4 --validation-episodes 2"
    command = f"-m torch.distributed.run --nproc-per-node 2 --master-port {port} -m arelu_meta.maml {flags}"
    done = subprocess.run(
        [sys.executable, *command.split(), "--device", DEVICE],
        cwd=store.parent,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test accuracy") == 1
