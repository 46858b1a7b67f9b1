"""The model of a pipeline: sources, flows and targets. Values only."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ottla.spark.pipelines.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.spark.pipelines.progress import Progress

Mode: TypeAlias = Literal["append", "update", "complete"]
Function: TypeAlias = "Callable[..., Any]"  # of dataframes, which pyspark has several classes for

MODES: Final = ("append", "update", "complete")
EXACTLY_ONCE: Final = "exactly-once"
DELIVERIES: Final = ("at-least-once", EXACTLY_ONCE)
OUR_FORMAT: Final = "ottla"
ICEBERG: Final = "iceberg"
INVALID: Final = ("fail", "null", "drop")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class FromRegistry:
    """The schema of values is in a registry, by default under `<topic>-value`.

    `url` is that of the registry; without it the brokers name theirs. `version` and `invalid` are
    for sources; topics that flows write register the schema of the flow's columns, in Avro.
    """

    subject: str | None = None
    version: str = "latest"
    invalid: str = "fail"
    url: str | None = None


@dataclass(frozen=True, slots=True)
class ToTopic:
    """Rows become records. Frames without a column `value` are written as JSON objects.

    With a `schema` they are written in Avro, with the id of that schema.
    """

    name: str
    key: str | None = None
    partitions: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    schema: FromRegistry | None = None


@dataclass(frozen=True, slots=True)
class ToTable:
    """Rows become files below the environment's `tables`, or below a path if it is one."""

    name: str
    format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_iceberg(self) -> bool:
        """Whether the driver commits its batches itself, exactly once."""
        return self.format == ICEBERG


@dataclass(frozen=True, slots=True)
class ToConsole:
    """The first rows of each batch are printed."""

    rows: int = 20


Target: TypeAlias = ToTopic | ToTable | ToConsole


@dataclass(frozen=True, slots=True)
class Source:
    """An input stream; `shape` converts its frame for the flows."""

    name: str
    topic: str | None = None
    share_group: str | None = None
    schema: str | FromRegistry | None = None
    start: str = "earliest"
    format: str = OUR_FORMAT
    options: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    """The topic whose table is read first, and whose log then; in place of `topic`."""
    shape: Function | None = None

    @property
    def needs_broker(self) -> bool:
        """Whether it is read from brokers, and not from files, Redis or a tier alone."""
        given = {name.lower(): value.strip().lower() for name, value in self.options.items()}
        is_log = given.get("store", "kafka") == "kafka" and given.get("tier") != "only"
        return self.format == OUR_FORMAT and is_log


@dataclass(frozen=True, slots=True)
class Reject:
    """Where rows of a flow go for which `when` is true or unknown."""

    to: ToTopic
    when: str


@dataclass(frozen=True, slots=True)
class Flow:
    """One function or SQL statement; with `writes` it is a query."""

    name: str
    reads: tuple[str, ...]
    writes: Target | None = None
    inline: bool = False
    trigger: str | None = None
    delivery: str = "at-least-once"
    mode: Mode = "append"
    checkpoint: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    read_options: Mapping[str, str] = field(default_factory=dict)
    reject: Reject | None = None
    function: Function | None = None
    sql: str | None = None

    @property
    def is_exactly_once(self) -> bool:
        """Whether a batch that is repeated is not written again by the sink."""
        into_iceberg = isinstance(self.writes, ToTable) and self.writes.is_iceberg
        return self.delivery == EXACTLY_ONCE or into_iceberg

    def topics_written(self) -> list[ToTopic]:
        """Where records of this flow go."""
        found = [self.writes] if isinstance(self.writes, ToTopic) else []
        return found if self.reject is None else [*found, self.reject.to]


@dataclass(frozen=True, slots=True)
class Hook:
    """A function to call after batches, of one flow or of all."""

    function: Callable[[Progress], object]
    flow: str | None


@dataclass(slots=True)
class Definition:
    """All that a file declares."""

    name: str
    sources: dict[str, Source] = field(default_factory=dict)
    flows: dict[str, Flow] = field(default_factory=dict)
    hooks: list[Hook] = field(default_factory=list)
    samples: dict[str, Callable[[], Iterable[object]]] = field(default_factory=dict)

    def add(self, node: Source | Flow) -> None:
        """Register a node; its name must be new."""
        if not _NAME.fullmatch(node.name):
            raise DefinitionError(
                f"{node.name!r} is not a valid name: use letters, digits, dots, dashes, underscores"
            )
        if node.name in self.sources or node.name in self.flows:
            raise DefinitionError(f"two things are called {node.name}: rename one of them")
        if isinstance(node, Source):
            self.sources[node.name] = node
        else:
            self.flows[node.name] = node


def seconds(text: str, what: str) -> float:
    """Seconds of a time such as 500ms, 10s, 5m, 1h."""
    found = _TIME.fullmatch(text.strip().lower())
    if found is None:
        raise DefinitionError(f"{what} is a time such as 500ms, 10s, 5m or 1h, not {text!r}")
    return float(found[1]) * _SECONDS[found[2]]
