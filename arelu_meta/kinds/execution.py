"""How runs are carried out: what every run has, and more for runs on episodes and on batches. Imports no torch."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from arelu_meta.errors import InputError
from arelu_meta.kinds.sections import Section

MOST_SEEDS = 100_000
MOST_THREADS = 1024  # libraries fail in ways of their own when asked for more threads than a process may have
MOST_MEBIBYTES = 1 << 40
_SETTINGS_IN_TAGS = ("chunk", "record_steps", "compile", "together", "channels_last", "fused")
_IN_TAGS_WHERE_SET = ("tf32", "cudnn_benchmark", "deterministic")  # earlier runs had none of them
EXECUTION_TAGS = (
    *("exec.threads", "exec.processes", "exec.workers", "exec.precision"),
    *(f"exec.{name}" for name in _SETTINGS_IN_TAGS),
)
"""MLflow tags of a run that say how it was carried out: they can change the last digits, and are in no identity.

Every run has the first four; the others where its kind has such a setting. Runs with `tf32`, `cudnn_benchmark` or
`deterministic` are tagged with these as well. `exec.workers` is the number of runs that a
comparison has under way at once; it passes it on in `Execution.tags`.
"""


def seed_numbers(text: str) -> list[int]:
    """Read seeds: numbers and ranges, separated by commas.

    >>> seed_numbers("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(",") if text else []:
        match = re.fullmatch(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*", part)
        named = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not named:
            raise InputError(f"seeds {text[:80]!r} are not numbers and ranges such as 0-4 or 0,2,7")
        if len(seeds) + len(named) > MOST_SEEDS:
            raise InputError(f"seeds {text[:80]!r} are more than {MOST_SEEDS:,}; name fewer")
        seeds += named
    if len(set(seeds)) < len(seeds):
        raise InputError(f"seeds {text!r} name a seed twice")
    return seeds


class Execution(Section):
    """How a run is carried out; no part of its identity."""

    device: str = "auto"
    """auto (a GPU when there is one), cpu, cuda, cuda:1, mps, ..."""
    threads: Annotated[int, Field(ge=0, le=MOST_THREADS)] = 0
    """CPU threads of torch; 0 leaves the choice to torch, which takes all cores"""
    tf32: bool = False
    """on a GPU, matrix products and convolutions in TF32: faster, with 10 bits of mantissa"""
    cudnn_benchmark: bool = False
    """on a GPU, let cuDNN try its algorithms for every shape and take the fastest"""
    deterministic: bool = False
    """algorithms that give the same bits each time, slower; torch warns where it has none"""
    resume: bool = False
    """continue from the last checkpoint of this very run, if there is one and the run has not finished"""
    experiment: str = "arelu_meta"
    """MLflow experiment that takes the run"""
    offline: bool = False
    """record the run in its folder alone; python -m arelu_meta.store flush brings it to the MLflow store"""
    data_root: str = ""
    """folder of the published data sets"""
    image_memory: Annotated[int, Field(ge=0, le=MOST_MEBIBYTES)] = 0
    """MiB of memory for images; larger sets are decoded once to the cache folder; 0: a quarter of the machine's"""
    keep: Literal["auto", "cpu", "device"] = "auto"
    """where images wait: in the device's memory, or in the host's and copied ahead; auto: what they fit into"""
    follow_links: bool = False
    """follow links that lead out of a folder of images"""
    skip_broken: bool = False
    """leave out image files of a folder that cannot be read, and name them"""
    trust: str = ""
    """packages whose code a task file may name, separated by commas"""
    tags: dict[str, str] = Field(default_factory=dict)
    """more tags of the MLflow run, as key=value"""

    @classmethod
    def of(cls, execution: "Execution") -> Self:
        """Take over what of `execution` this kind of run has too, with its defaults for the rest."""
        if isinstance(execution, cls):
            return execution
        shared = cls.model_fields.keys() & type(execution).model_fields.keys()
        return cls(**{name: getattr(execution, name) for name in shared})

    def run_tags(self, *, threads: int, processes: int, precision: str) -> dict[str, str]:
        """Give the tags that say how a run is carried out: with its real `threads`, `processes` and `precision`."""
        values: dict[str, object] = {"threads": threads, "processes": processes, "workers": 1, "precision": precision}
        values |= {name: getattr(self, name) for name in _SETTINGS_IN_TAGS if name in type(self).model_fields}
        values |= {name: True for name in _IN_TAGS_WHERE_SET if getattr(self, name)}
        return {f"exec.{name}": "auto" if value is None else str(value) for name, value in values.items()}


class EpisodeExecution(Execution):
    """How a run on episodes is carried out; no part of its identity."""

    chunk: Annotated[int, Field(ge=0)] = 0
    """episodes held in memory at once; 0: the whole batch"""
    record_steps: bool = True
    """record the operations of the outer step and replay them: same results, faster"""


class BatchExecution(Execution):
    """How a run that trains on batches is carried out; no part of its identity.

    Memory layout, compilation and fused updates change results by rounding alone, as another number of threads does.
    """

    channels_last: bool | None = None
    """keep the channels of a pixel side by side in memory; by default on a CPU, whose convolutions are faster so"""
    compile: bool = False
    """compile the training pass with torch.compile"""
    fused: bool = False
    """update all parameters in one fused kernel"""

    def trainer_options(self) -> dict[str, Any]:
        """Give what `SupervisedTrainer` takes of it."""
        return {"channels_last": self.channels_last, "compile": self.compile, "fused": self.fused}


class TrainingExecution(BatchExecution):
    """How a run that trains one network on batches, or several seeds of it, is carried out."""

    seeds: str = ""
    """several seeds, each a run of its own: 0-4, or 0,2,7; finished ones are not repeated"""
    together: bool = False
    """train the seeds as one stacked network: faster for small batches or on a GPU"""
    layer_statistics: bool = True
    """measure activation RMS, gradient norm and dead alpha of every layer after every epoch, for figures/layers.png"""
    log_layers: bool = False
    """log these statistics as MLflow metrics too, up to three for each layer"""
    keep_model: bool = True
    """store the trained network as an MLflow model"""

    def trainer_options(self) -> dict[str, Any]:
        """Give what `SupervisedTrainer` takes of it; networks that are stacked keep their layout."""
        return super().trainer_options() | ({"channels_last": False} if self.together else {})

    @property
    def layers(self) -> Literal["", "drawn", "logged"]:
        """What is done with statistics of layers, as `run_supervised` takes it."""
        return "logged" if self.log_layers else "drawn" if self.layer_statistics else ""

    @model_validator(mode="after")
    def _consistent(self) -> "TrainingExecution":
        seed_numbers(self.seeds)  # for its errors
        if self.log_layers and not self.layer_statistics:
            raise InputError("`log_layers` logs what `layer_statistics` measures; drop one of them")
        if self.together and not self.seeds:
            raise InputError('`together` trains several seeds as one; name them, such as `seeds="0-4"`')
        for name in ("channels_last", "compile", "resume"):
            if self.together and getattr(self, name):
                raise InputError(f"`together` does not go with `{name}`; drop one of them")
        return self
