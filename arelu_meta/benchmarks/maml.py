"""One outer step of MAML, and a whole iteration with its sampling: ours beside learn2learn and higher."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F

from arelu_meta import learners
from arelu_meta.benchmarks.meta_step import Setting, Step, check_same_gradient, installed_engines
from arelu_meta.benchmarks.report import BenchReport, Row, timing_rows
from arelu_meta.benchmarks.sampling import local_or_bundled
from arelu_meta.benchmarks.timing import interleaved
from arelu_meta.data.episodes import EpisodeSampler
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.learn2learn_bridge import taskset
from arelu_meta.runtime.hardware import keep_freed_memory
from arelu_meta.training.meta import make_optimizer, meta_train

NARROW = Setting()
WIDE = Setting(backbone="conv4", activation="relu", meta_batch=16, inner_lr=0.4, inner_steps=1, queries=5)
OUTER_LR = 0.005
POOL = 1000  # episodes that the authors' script draws from


def bench_maml(root: str | None = None) -> Iterator[BenchReport]:
    """Compare the step of a narrow and of a wide network, then whole iterations."""
    train = local_or_bundled("mnist", "digits", root).train
    with keep_freed_memory():
        for setting, repeats in ((NARROW, 9), (WIDE, 5)):
            check_same_gradient(_steps(replace(setting, dtype=torch.float64)))
            steps = _steps(setting)
            title = (
                f"outer step, {setting.backbone}, {setting.ways}-way {setting.shots}-shot, {setting.meta_batch} "
                f"episodes, {setting.inner_steps} inner steps, second order, {torch.get_num_threads()} threads"
            )
            yield BenchReport(title, timing_rows(interleaved(steps, repeats=repeats)))
        yield _iterations(train)


def _steps(setting: Setting) -> dict[str, Step]:
    """The step on every engine that is installed, recorded too."""
    return {"func, recorded": setting.step(record=True)} | {name: setting.step(name) for name in installed_engines()}


def _iterations(train: ImageSet) -> BenchReport:
    """Sampling, step and update, as a user runs them; learn2learn's as the AReLU authors' script has them."""
    learner = learners.build("maml", NARROW.network(), inner_lr=NARROW.inner_lr, inner_steps=NARROW.inner_steps)
    sampler = EpisodeSampler(train, ways=NARROW.ways, shots=NARROW.shots, queries=NARROW.queries)
    random = torch.Generator().manual_seed(0)
    learner.record_steps(after=0)
    loop = meta_train(
        learner, make_optimizer(learner, OUTER_LR), lambda: sampler.sample(NARROW.meta_batch, random), iterations=10**6
    )
    work: dict[str, Callable[[], object]] = {"arelu_meta": lambda: next(loop)}
    if "learn2learn" in installed_engines():
        work[f"learn2learn, authors' script, {POOL} fixed episodes"] = _authors_iteration(train, POOL)
        work["learn2learn, authors' script, new episodes"] = _authors_iteration(train, -1)
    timings = interleaved(work, repeats=3, calls=2)
    title = f"whole iteration, {NARROW.backbone}, {train.name}, sampling and update included"
    return BenchReport(title, [Row(t.name, t.minimum, t.minimum / timings[0].minimum) for t in timings])


def _authors_iteration(train: ImageSet, pool: int) -> Callable[[], None]:
    """Draw each episode by learn2learn's transforms, adapt a clone, add up all query losses, one backward pass.

    The episodes of a pool are all described before, as they are in a long run of the script.
    """
    from learn2learn.algorithms import MAML  # after the engine's import, which has silenced its banner

    episodes = taskset(train, ways=NARROW.ways, images_per_class=NARROW.shots + NARROW.queries, num_tasks=pool)
    for number in range(pool):
        episodes[number]
    wrapper = MAML(NARROW.network(), lr=NARROW.inner_lr)
    optimizer = torch.optim.Adam(wrapper.parameters(), OUTER_LR)

    def iteration() -> None:
        optimizer.zero_grad()
        total = torch.zeros(())
        for _ in range(NARROW.meta_batch):
            images, labels = episodes.sample()
            learner = wrapper.clone()
            support = torch.zeros(len(labels), dtype=torch.bool)
            support[:: NARROW.shots + NARROW.queries] = True
            for _ in range(NARROW.inner_steps):
                learner.adapt(F.cross_entropy(learner(images[support]), labels[support]))
            total = total + F.cross_entropy(learner(images[~support]), labels[~support])
        (total / NARROW.meta_batch).backward()
        optimizer.step()

    return iteration
