"""What the AReLU paper claims, and what the shipped runs say of it: numbers and verdicts come from their CSV files."""

import pandas as pd
from scipy import stats

from tests.published_cells import RESULTS

CONTROLS = ("arelu_frozen", "relu_gain", "arelu_unit")
FIRST = "mnist_first_epoch"
OPEN = "open"


def runs_of(experiment: str, **place: object) -> pd.DataFrame:
    """Shipped runs at a place."""
    runs = pd.read_csv(RESULTS / f"{experiment}_runs.csv")
    for axis, value in place.items():
        runs = runs[runs[axis] == value]
    return runs


def paired(experiment: str, arm: str, other: str, metric: str = "test/accuracy", **place: object) -> pd.Series:
    """Differences of two arms on the same seeds, of all trainings that ended."""
    table = runs_of(experiment, **place).pivot(index="seed", columns="activation", values=metric)
    return (table[arm] - table[other]).dropna()


def with_interval(differences: pd.Series) -> str:
    """Mean and 95 % t interval: `+41.1 points [+31.8, +50.4], n = 5`."""
    low, high = stats.t.interval(0.95, len(differences) - 1, differences.mean(), stats.sem(differences))
    return f"{differences.mean():+.1f} points [{low:+.1f}, {high:+.1f}], n = {len(differences)}"


def judged(differences: pd.Series, margin: float) -> str:
    """Equivalent within the margin by two one-sided tests, else ahead or behind by the interval, else undecided."""
    low, high = stats.t.interval(0.90, len(differences) - 1, differences.mean(), stats.sem(differences))
    if -margin < low and high < margin:
        return f"equivalent within {margin:g}"
    low, high = stats.t.interval(0.95, len(differences) - 1, differences.mean(), stats.sem(differences))
    return "ahead" if low > 0 else "behind" if high < 0 else "undecided"


def claim_rows() -> list[list[str]]:
    """A row per claim: the paper's words in short, what tests it, ours, the verdict."""
    return [
        *_small_rates(),
        *_starts(),
        _transfer(),
        *_meta_learning(),
        _later("faster on CIFAR-100 in five networks, learnable ones faster than others", "cifar100_curves"),
        _later("AReLU above ReLU on CIFAR-10", "cifar10"),
        _later("AReLU above ReLU on CIFAR-100, top-1 and top-5", "cifar100"),
        _later("the clamp keeps weight decay from pushing alpha to zero", "cifar10", "axis activation_weight_decay"),
        _later("U-Net: 91.14 against 90.77 % Dice", "segmentation"),
        ["Grad-CAM is more meaningful with AReLU", "figure `gradcam`", "a picture", "the paper names no measure of it"],
        [
            "two parameters per layer, at negligible cost",
            "`bench activation`, [performance](performance.md)",
            "two parameters: a test of every backbone; costs are on that page",
            "two: yes; negligible: not on a CPU",
        ],
    ]


def _small_rates() -> list[list[str]]:
    """AReLU at a small learning rate, taken apart, and at its own rate."""
    place = {"optimizer": "sgd", "lr": 1e-4}
    lead, learned = paired(FIRST, "arelu", "relu", **place), paired(FIRST, "arelu", "arelu_frozen", **place)
    gain, shape = paired(FIRST, "relu_gain", "relu", **place), paired(FIRST, "arelu_unit", "relu", **place)
    smallest = paired(FIRST, "arelu", "relu", optimizer="sgd", lr=1e-5)
    rates, own = own_rates("learning_rates")
    return [
        [
            "AReLU learns faster at small learning rates",
            f"`{FIRST}`, AReLU less ReLU",
            f"SGD 1e-4 {with_interval(lead)}; SGD 1e-5 {with_interval(smallest)}",
            f"at 1e-4 {judged(lead, 1)}; at 1e-5 {judged(smallest, 1)}",
        ],
        [
            "because its attention is learned",
            f"`{FIRST}`, AReLU less `arelu_frozen`, which learns no slopes",
            f"SGD 1e-4 {with_interval(learned)}",
            f"learning: {judged(learned, 1)}",
        ],
        [
            "because it amplifies gradients",
            f"`{FIRST}`, ReLU with AReLU's gain, and AReLU without it, less ReLU; `mnist_init`",
            f"SGD 1e-4 {with_interval(gain)}, and {with_interval(shape)}",
            f"the gain alone: {judged(gain, 1)}; the rest without it: {judged(shape, 1)}",
        ],
        [
            "so it is the better activation",
            "`learning_rates`, AReLU less ReLU, each at the rate that validates best",
            f"{rates['arelu']:g} and {rates['relu']:g}: {with_interval(own)}",
            f"at own rates {judged(own, 1)}",
        ],
    ]


def own_rates(experiment: str) -> tuple[dict[str, float], pd.Series]:
    """The rate of AReLU and of ReLU whose mean validation is best, and their differences there."""
    runs, rates, own = runs_of(experiment), {}, {}
    for arm in ("arelu", "relu"):
        table = runs[runs["activation"] == arm]
        scores = table.pivot(index="seed", columns="lr", values="validation/accuracy")
        rates[arm] = float(scores.mean(skipna=False).idxmax())
        own[arm] = table[table["lr"] == rates[arm]].set_index("seed")["test/accuracy"]
    return rates, (own["arelu"] - own["relu"]).dropna()


def _starts() -> list[list[str]]:
    runs = runs_of("arelu_init")
    seeds, score = runs["seed"].nunique(), "test/accuracy"
    by_start = runs.groupby(["alpha", "beta"])[score].mean()
    means = {axis: runs.groupby(axis)[score].mean() for axis in ("alpha", "beta")}
    texts = {
        axis: ", ".join(f"{value:g}: {mean:.2f}" for value, mean in table.items()) for axis, table in means.items()
    }
    said = f"{OPEN}: {seeds} seed{'s' * (seeds > 1)}"
    return [
        [
            "insensitive to the start of alpha and beta",
            "`arelu_init`, all starts",
            f"{len(by_start)} starts within {by_start.max() - by_start.min():.1f} points",
            said,
        ],
        ["a larger beta is faster", "`arelu_init`, by beta", texts["beta"], said],
        ["alpha 0.25 or 0.75 is best", "`arelu_init` by alpha; `arelu_init_alpha`", texts["alpha"], said],
    ]


def _transfer() -> list[str]:
    """Accuracy at the end of the fine-tuning after the shortest pre-training."""
    metric, name = "test/finetune_100", "transfer_mnist_to_svhn"
    runs = runs_of(name)
    epochs = runs["pretrain_epochs"].min()
    means = runs[runs["pretrain_epochs"] == epochs].groupby("activation")[metric].mean()
    apart = paired(name, "arelu", "relu", metric, pretrain_epochs=epochs)
    ours = ", ".join(f"`{arm}` {means[arm]:.1f} %" for arm in means.index)
    said = f"{OPEN}: 1 seed" if len(apart) < 2 else f"AReLU less ReLU {with_interval(apart)}: {judged(apart, 3)}"
    setting = f"pre-trained for {epochs} epochs, fine-tuned for 100: {ours} ([report](results/{name}.md))"
    return ["AReLU transfers best", f"`{name}`", setting, said]


def _meta_learning() -> list[list[str]]:
    """AReLU's place by the paper's own measure, and on test images; PAU's figures."""
    rows = []
    for shots in (1, 5):
        runs = runs_of("maml_mnist", shots=shots)
        means = runs[~runs["activation"].isin(CONTROLS)].groupby("activation")["paper/best_batch_accuracy"].mean()
        place = int((means > means["arelu"]).sum()) + 1
        if shots == 1:  # which has 20 fresh seeds of its own
            where, test = "`maml_mnist_clip`", paired("maml_mnist_clip", "arelu", "relu", episode_clip="none")
        else:
            where, test = "there, collapsed trainings too", paired("maml_mnist", "arelu", "relu", shots=shots)
        rows.append(
            [
                f"AReLU is best in MAML, {shots} shot{'s' * (shots > 1)}",
                f"`maml_mnist`, best training batch; on test images AReLU less ReLU, {where}",
                f"place {place} of {len(means)}; {with_interval(test)}",
                f"{'repeats' if place == 1 else 'does not repeat'}; on test images {judged(test, 3)}",
            ]
        )
    pau = {shots: runs_of("maml_mnist", shots=shots, activation="pau") for shots in (1, 5)}
    ours = [table["paper/best_batch_accuracy"].mean() for table in pau.values()]
    repeats = all(value < printed + 10 for value, printed in zip(ours, (43.13, 40.12), strict=True))
    said = f"{ours[0]:.1f} and {ours[1]:.1f} %"
    claim = "PAU fails in MAML, 43.1 and 40.1 %"
    return [*rows, [claim, "`maml_mnist`, best training batch", said, "repeats" if repeats else "does not repeat"]]


def _later(claim: str, experiment: str, what: str = "") -> list[str]:
    """A claim whose experiment has a report of its own, once it has been run."""
    measured = (RESULTS / f"{experiment}_runs.csv").is_file()
    tested = f"`{experiment}`{f', {what}' if what else ''}"
    ours = f"[report](results/{experiment}.md)" if measured else "not measured"
    return [claim, tested, ours, "in the report" if measured else OPEN]
