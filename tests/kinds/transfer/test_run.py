import pytest
import torch
from mlflow import MlflowClient

from arelu_meta.errors import InputError
from arelu_meta.kinds import run
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.sections import InputSection
from arelu_meta.kinds.transfer.run import load_domain
from arelu_meta.kinds.transfer.spec import DomainsSection
from arelu_meta.store.run_folder import RunFolder
from tests.supervised_runs import artifacts, interrupted_after, no_model, same_weights, transfer_spec
from tests.tiny_images import DIGITS, DISCS, NEGATIVE
from tests.tiny_runs import MLFLOW_WARNINGS, metric_history

pytestmark = MLFLOW_WARNINGS
__all__ = ["no_model"]  # a fixture
RESUME = Execution(resume=True)
DOMAINS = DomainsSection(source=DIGITS, target=NEGATIVE)
SETTINGS = ("no_pretrain", "no_finetune", "finetune_1", "finetune_2")


def accuracy_of(network: torch.nn.Module) -> float:
    """On the 40 test images of the target, counted here."""
    test = load_domain(NEGATIVE, DOMAINS, InputSection(), None).test
    with torch.no_grad():
        answers = network.eval()(test.pixels(torch.arange(len(test)))).argmax(1)
    return (answers == test.labels).float().mean().item()


def test_a_whole_run_is_in_the_store(store_uri):
    spec = transfer_spec()
    result = run(spec)
    stored = MlflowClient(store_uri).get_run(result.run_id)
    assert stored.info.status == "FINISHED"
    assert stored.data.params["pretrain_lr"] == "0.02"
    source, target = (load_domain(name, DOMAINS, InputSection(), None) for name in (DIGITS, NEGATIVE))
    wanted = {"kind": "transfer", "protocol": "sound", "source_digest": source.train.digest}
    wanted |= {"data_digest": target.train.digest, "split_digest": target.digest}
    assert wanted.items() <= stored.data.tags.items()
    history = metric_history(store_uri, result.run_id)
    for stage in ("pretrain", "scratch", "finetune"):
        assert [step for step, _ in history[f"{stage}/loss"]] == [1, 2]
        assert history[f"{stage}/test_accuracy"] == result.curves[stage]
        # 140 images of the source and 140 or 150 of the target in batches of 32: five steps an epoch
        assert [step for step, _ in history[f"{stage}/loss_by_step"]] == list(range(1, 11))
        assert [step for step, _ in history[f"{stage}/validation_loss"]] == [1, 2]
    with torch.no_grad():
        logits = result.network.eval()(target.validation.pixels(torch.arange(len(target.validation))))
    loss = torch.nn.functional.cross_entropy(logits, target.validation.labels).item()
    assert history["finetune/validation_loss"][-1] == (2, pytest.approx(loss, rel=1e-5))
    assert result.n == 40
    for setting in SETTINGS:
        assert history[f"test/{setting}"] == [(2, pytest.approx(result.rows()[setting].mean))]
    assert {"spec.json", "figures/training_curve.png"} <= artifacts(store_uri, result.run_id)
    assert accuracy_of(result.network) == pytest.approx(result.rows()["finetune_2"].mean)


@pytest.mark.usefixtures("store", "no_model")
def test_fine_tuning_starts_from_the_pretrained_weights():
    """At next to no learning rate tuning changes nothing: as good as untuned; and from scratch is the start."""
    result = run(transfer_spec(training={"lr": 1e-12, "epochs": 1}, report_epochs=[1]))
    rows = result.rows()
    assert rows["finetune_1"].mean == rows["no_finetune"].mean
    from arelu_meta.kinds.networks import build_classifier

    target = load_domain(NEGATIVE, DOMAINS, InputSection(), None)
    fresh = build_classifier(result.spec.network, target.train, seed=0)
    assert rows["no_pretrain"].mean == pytest.approx(accuracy_of(fresh))
    assert not same_weights(result.network, fresh)


@pytest.mark.usefixtures("store", "no_model")
def test_the_seed_decides_every_bit():
    one, same, other = (run(transfer_spec(seed=seed)) for seed in (0, 0, 1))
    assert same_weights(one.network, same.network)
    assert one.curves == same.curves
    assert not same_weights(one.network, other.network)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("activation", "advances"), [("rrelu", 1), ("rrelu", 2), ("rrelu", 3), ("rrelu", 5), ("arelu", 3)]
)
def test_a_resumed_run_is_the_uninterrupted_one_bit_by_bit(store_uri, monkeypatch, tmp_path, activation, advances):
    """Two epochs in each of three stages: stopped in the first, at its end, in the second and in the last.

    RReLU draws numbers in every step, so that a stream that is not where it was is seen; AReLU has state of its own.
    """
    spec = transfer_spec(network={"activation": activation})
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "other"))
    whole = run(spec)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    with pytest.raises(KeyboardInterrupt):
        run(spec, bar=interrupted_after(advances))
    stopped = RunFolder(spec).load()
    assert stopped["progress"]["stage"] == (advances - 1) // 2
    assert MlflowClient(store_uri).get_run(stopped["run_id"]).info.status == "KILLED"
    resumed = run(spec, RESUME)
    assert resumed.run_id == stopped["run_id"]
    assert resumed.curves == whole.curves
    assert resumed.untuned == whole.untuned
    assert same_weights(resumed.network, whole.network)
    assert metric_history(store_uri, resumed.run_id) == metric_history(store_uri, whole.run_id)


@pytest.mark.usefixtures("store", "no_model")
def test_a_finished_run_asked_to_resume_is_run_anew_with_the_same_end():
    whole = run(transfer_spec())
    again = run(transfer_spec(), RESUME)
    assert again.run_id != whole.run_id
    assert same_weights(again.network, whole.network)
    assert {name: row.mean for name, row in again.rows().items()} == {n: r.mean for n, r in whole.rows().items()}


@pytest.mark.usefixtures("store", "no_model")
def test_the_running_mean_is_given_back_where_it_is_tested():
    """A decay of 0.999 keeps the mean near the first step, far from where the weights went."""
    result = run(transfer_spec(training={"ema": 0.999, "epochs": 4}, report_epochs=[4]))
    assert accuracy_of(result.network) == pytest.approx(result.rows()["finetune_4"].mean)


@pytest.mark.usefixtures("no_model")
def test_the_paper_reports_the_best_epoch_so_far(store_uri):
    result = run(transfer_spec(evaluation={"protocol": "paper"}, training={"epochs": 3}, report_epochs=[1, 3]))
    source, target = (
        load_domain(name, DOMAINS, InputSection(), None, train_on_validation=True) for name in (DIGITS, NEGATIVE)
    )
    assert (len(source.train), len(target.train)) == (160, 160)  # all of 200 but a fifth to test
    tags = MlflowClient(store_uri).get_run(result.run_id).data.tags
    assert (tags["source_digest"], tags["data_digest"]) == (source.train.digest, target.train.digest)
    scores = [score for _, score in result.curves["finetune"]]
    history = metric_history(store_uri, result.run_id)
    assert not any("validation" in name for name in history)
    assert history["paper/best_epoch_test/finetune_1"] == [(3, pytest.approx(scores[0]))]
    assert history["paper/best_epoch_test/finetune_3"] == [(3, pytest.approx(max(scores)))]
    assert MlflowClient(store_uri).get_run(result.run_id).data.tags["protocol"] == "paper"


WRONG = [
    ({"domains": {"target": DISCS}}, "discs has one class, 'disc'; two are needed at least"),
    ({"fit": {"image_size": 20}}, "mnist_conv takes images of 28 to 35 pixels"),
]


@pytest.mark.parametrize(("sections", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_input_opens_no_run(store, statuses, sections, message):
    with pytest.raises(InputError, match=message):
        run(transfer_spec(**sections))
    assert statuses(store) == []
