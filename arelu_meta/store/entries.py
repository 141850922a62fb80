"""What an entry of a journal may be: checked when it is read, as the folder of a run may come from anywhere."""

import json
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # what a database takes
Texts = dict[str, str]


class Began(TypedDict):
    """A run was begun, or resumed."""

    kind: Literal["start", "resume"]
    time: Whole
    experiment: str
    name: str
    tags: Texts
    process: str


class Values(TypedDict):
    """Parameters or tags, of the run or of its experiment."""

    kind: Literal["params", "tags", "experiment_tags"]
    values: Texts


class Points(TypedDict):
    """Metrics: name, value, time, step."""

    kind: Literal["metrics"]
    points: list[tuple[str, float, Whole, Whole]]


@with_config(ConfigDict(extra="forbid"))
class Described(TypedDict):
    """What MLflow keeps of a data set."""

    name: str
    digest: str
    source_type: str
    source: str
    schema: NotRequired[str]
    profile: NotRequired[str]


class Images(TypedDict):
    """A data set that the run was given."""

    kind: Literal["dataset"]
    dataset: Described
    context: str


class Artifact(TypedDict):
    """A file of the journal, and the folder of artifacts that takes it."""

    kind: Literal["artifact"]
    file: str
    folder: str


class StoredNetwork(TypedDict):
    """A folder of the journal with a model."""

    kind: Literal["model"]
    folder: str


class Child(TypedDict):
    """A finished run below this one."""

    kind: Literal["child"]
    time: Whole
    name: str
    metrics: dict[str, float]
    tags: Texts


class Ended(TypedDict):
    """How the run ended."""

    kind: Literal["end"]
    time: Whole
    status: Literal["FINISHED", "FAILED", "KILLED"]


_ENTRY: TypeAdapter[Any] = TypeAdapter(
    Annotated[Began | Values | Points | Images | Artifact | StoredNetwork | Child | Ended, Field(discriminator="kind")]
)


def parse_entry(text: bytes) -> dict[str, Any]:
    """Read an entry.

    Raises:
        ValueError: it is not JSON, or no entry.

    >>> parse_entry(b'{"kind": "end", "time": 7, "status": "FINISHED"}')
    {'kind': 'end', 'time': 7, 'status': 'FINISHED'}
    """
    try:
        _ENTRY.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None
    entry: dict[str, Any] = json.loads(text)
    return entry
