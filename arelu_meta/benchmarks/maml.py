"""One outer step of MAML, and a whole iteration with its sampling: ours beside learn2learn and higher."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from arelu_meta import learners
from arelu_meta.benchmarks.images import mnist_or_digits
from arelu_meta.benchmarks.meta_step import Setting, check_equal, engines_at_hand
from arelu_meta.benchmarks.report import BenchReport, Row, rows_of
from arelu_meta.benchmarks.timing import interleaved
from arelu_meta.data.episodes import EpisodeSampler
from arelu_meta.data.imageset import ImageSet
from arelu_meta.learners.repeated_step import repeat_steps
from arelu_meta.runtime.hardware import keep_freed_memory
from arelu_meta.training.meta import make_optimizer, meta_train

NARROW = Setting()
WIDE = Setting(backbone="conv4", activation="relu", tasks=16, inner_lr=0.4, inner_steps=1, queries=5)
OUTER_LR = 0.005
RECORDED = "func, recorded"


def bench_maml(root: str | None = None) -> Iterator[BenchReport]:
    """Compare the step of a narrow and of a wide network, then whole iterations."""
    train = mnist_or_digits(root).train
    with keep_freed_memory():
        yield _steps(NARROW, repeats=9)
        yield _steps(WIDE, repeats=5)
        yield _iterations(train)


def _steps(setting: Setting, repeats: int) -> BenchReport:
    steps = {RECORDED: setting.step(repeat=True), **{name: setting.step(name) for name in engines_at_hand()}}
    check_equal(steps)
    timings = interleaved(steps, repeats=repeats)
    title = (
        f"outer step, {setting.backbone}, {setting.ways}-way {setting.shots}-shot, {setting.tasks} tasks, "
        f"{setting.inner_steps} inner steps, second order, {torch.get_num_threads()} threads"
    )
    return BenchReport(title, rows_of(timings))


def _iterations(train: ImageSet) -> BenchReport:
    """Sampling, step and update, as a user runs them; learn2learn's as the AReLU authors' script has them."""
    ours = _our_iterations(train)
    ways: dict[str, Callable[[], object]] = {"arelu_meta": ours}
    if "learn2learn" in engines_at_hand():
        ways["learn2learn, authors' script"] = _authors_iteration(train)
    timings = interleaved(ways, repeats=3, calls=2)
    title = f"whole iteration, {NARROW.backbone}, {train.name}, sampling and update included"
    return BenchReport(title, [Row(t.name, t.minimum, t.minimum / timings[0].minimum) for t in timings])


def _our_iterations(train: ImageSet) -> Callable[[], object]:
    network = NARROW.network()
    learner = learners.build("maml", network, inner_lr=NARROW.inner_lr, inner_steps=NARROW.inner_steps)
    sampler = EpisodeSampler(train, ways=NARROW.ways, shots=NARROW.shots, queries=NARROW.queries)
    random = torch.Generator().manual_seed(0)
    repeat_steps(learner, after=0)
    loop = meta_train(
        learner, make_optimizer(learner, OUTER_LR), lambda: sampler.sample(NARROW.tasks, random), iterations=10**6
    )
    return lambda: next(loop)


def _authors_iteration(train: ImageSet) -> Callable[[], object]:
    """Draw each task by learn2learn's transforms, adapt a clone, add up the losses of all tasks, one backward pass."""
    from learn2learn.algorithms import MAML  # the engine's import, a few lines up, has silenced its banner

    from arelu_meta.data.learn2learn_bridge import taskset

    tasks = taskset(train, ways=NARROW.ways, images_per_class=NARROW.shots + NARROW.queries)
    wrapper = MAML(NARROW.network(), lr=NARROW.inner_lr)
    optimizer = torch.optim.Adam(wrapper.parameters(), OUTER_LR)

    def iteration() -> None:
        optimizer.zero_grad()
        total = torch.zeros(())
        for _ in range(NARROW.tasks):
            images, labels = tasks.sample()
            learner = wrapper.clone()
            support = torch.zeros(len(labels), dtype=torch.bool)
            support[:: NARROW.shots + NARROW.queries] = True
            for _ in range(NARROW.inner_steps):
                learner.adapt(F.cross_entropy(learner(images[support]), labels[support]))
            total = total + F.cross_entropy(learner(images[~support]), labels[~support])
        (total / NARROW.tasks).backward()
        optimizer.step()

    return iteration
