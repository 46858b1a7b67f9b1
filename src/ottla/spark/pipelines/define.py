"""The names that a pipeline file uses: decorators that register functions without changing them.

A file registers into the open definition of `collecting`. Elsewhere, such as in a test that imports
the file, the decorators only return the function.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar, overload

from ottla.spark.pipelines.errors import DefinitionError
from ottla.spark.pipelines.model import (
    OUR_FORMAT,
    Definition,
    Flow,
    FromRegistry,
    Function,
    Hook,
    Mode,
    Reject,
    Source,
    Target,
    ToConsole,
    ToTable,
    ToTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ottla.spark.pipelines.progress import Progress

F = TypeVar("F", bound=Function)
REGISTRY: Final = "registry"


@dataclass
class _Collected:
    definition: Definition
    rejects: list[tuple[Function, Reject]] = field(default_factory=list)


_OPEN: ContextVar[_Collected | None] = ContextVar("ottla_pipeline", default=None)


@contextmanager
def collecting(name: str) -> Iterator[Definition]:
    """Collect the declarations inside the block."""
    collected = _Collected(Definition(name))
    token = _OPEN.set(collected)
    try:
        yield collected.definition
    finally:
        _OPEN.reset(token)
    flows = collected.definition.flows
    for function, rule in collected.rejects:
        of = [one for one in flows.values() if one.function is function]
        if not of:
            raise DefinitionError(f"@reject on {function.__name__} needs @flow beside it")
        for one in of:
            flows[one.name] = replace(one, reject=rule)


def topic(
    name: str,
    *,
    key: str | None = None,
    partitions: int | None = None,
    options: Mapping[str, object] | None = None,
    schema: FromRegistry | str | None = None,
) -> ToTopic:
    """Write to a topic, which is created if it does not exist.

    A frame with a column `value` is written as it is (`key`, `value`, `headers`, `partition`).
    Any other becomes JSON objects, with the column `key` as their key. With `schema=registry()`
    rows become Avro; their schema is registered when the flow starts.
    """
    found = FromRegistry() if schema == REGISTRY else schema
    if isinstance(found, str):
        raise DefinitionError(f"topic {name}: schema is registry(...), not {schema!r}")
    return ToTopic(name, key, partitions, _texts(options), found)


def table(
    name: str,
    *,
    format: str = "parquet",  # noqa: A002  # Spark's name for it
    partition_by: Sequence[str] = (),
    options: Mapping[str, object] | None = None,
) -> ToTable:
    """Write files; a name with a slash is a path of its own.

    With `format="iceberg"` each batch is committed exactly once, and `partition_by` takes columns
    and `day(column)`, `hour`, `month` and `year`. The catalogue is a file beside the tables, or
    that of `options={"catalog": "postgresql://..."}`.
    """
    return ToTable(name, format, tuple(partition_by), _texts(options))


def registry(
    subject: str | None = None,
    *,
    version: str | int = "latest",
    invalid: str = "fail",
    url: str | None = None,
) -> FromRegistry:
    """The schema of a source or a topic: a subject of a registry, `<topic>-value` by default.

    The columns of a source are those of this version for the whole run; values of other versions
    are resolved to it. `invalid` values fail the flow, or are null with their reason in `_error`,
    or dropped. For a topic that a flow writes, the schema of its columns is registered there.
    """
    return FromRegistry(subject, str(version), invalid, url)


def console(rows: int = 20) -> ToConsole:
    """Print the first rows of each batch."""
    return ToConsole(rows)


class Shape:
    """The result of `source`: a decorator for a function that converts the raw frame."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, function: F) -> F:
        collected = _OPEN.get()
        if collected is not None:
            sources = collected.definition.sources
            sources[self._name] = replace(sources[self._name], shape=function)
        return function


def source(
    name: str,
    *,
    topic: str | None = None,
    share_group: str | None = None,
    schema: str | FromRegistry | None = None,
    start: str = "earliest",
    format: str = OUR_FORMAT,  # noqa: A002  # Spark's name for it
    options: Mapping[str, object] | None = None,
    table: str | None = None,
) -> Shape:
    """Declare a stream; as a decorator, with a function that converts its frame.

    `topic` names one or several, with commas between. With a `share_group` the topic is a queue
    whose records are shared with all other members of that group. With a `schema` such as
    `"shop string, amount double"` values are read as JSON objects with these fields; with
    `registry()`, or the text `"registry"`, as a schema registry says. `table` names, in place of
    `topic`, a topic that is kept as a table: old rows come from the table's files, new ones from
    the log, and the columns are those of the table.
    """
    schema = FromRegistry() if schema == REGISTRY else schema
    declared = Source(name, topic, share_group, schema, start, format, _texts(options), table=table)
    collected = _OPEN.get()
    if collected is not None:
        collected.definition.add(declared)
    return Shape(name)


def flow(
    name: str,
    *,
    reads: Sequence[str] | None = None,
    writes: Target | None = None,
    inline: bool = False,
    trigger: str | None = None,
    delivery: str = "at-least-once",
    mode: Mode = "append",
    options: Mapping[str, object] | None = None,
    read_options: Mapping[str, object] | None = None,
) -> Callable[[F], F]:
    """Declare a flow: a function that takes dataframes by name and returns one.

    Without `reads` the function reads the sources and flows named by its parameters. Readers of a
    flow get the rows it returned: through its topic or table, or directly from an `inline` one.
    """

    def register(function: F) -> F:
        names = tuple(reads if reads is not None else inspect.signature(function).parameters)
        declared = Flow(
            name,
            names,
            writes,
            inline,
            trigger,
            delivery,
            mode,
            options=_texts(options),
            read_options=_texts(read_options),
            function=function,
        )
        collected = _OPEN.get()
        if collected is not None:
            collected.definition.add(declared)
        return function

    return register


def reject(*, to: ToTopic | str, when: str) -> Callable[[F], F]:
    """Beside @flow: rows for which the SQL condition `when` is true or unknown go to a topic.

    They are written in the same batch as the others, so a queue's record is settled only when it is
    in one place or the other.
    """
    rule = Reject(ToTopic(to) if isinstance(to, str) else to, when)

    def register(function: F) -> F:
        collected = _OPEN.get()
        if collected is not None:
            collected.rejects.append((function, rule))
        return function

    return register


@overload
def on_batch(
    of: Callable[[Progress], object],
) -> Callable[[Progress], object]: ...
@overload
def on_batch(
    of: str | None = None,
) -> Callable[[Callable[[Progress], object]], Callable[[Progress], object]]: ...
def on_batch(of: Callable[[Progress], object] | str | None = None) -> object:
    """Call a function with the `Progress` of each batch, of one flow or of all.

    It runs in the process of `ottla run`, after the batch is in Spark's log. A batch may be
    reported twice after a crash, and an exception in the function is only a warning.
    """

    def register(
        function: Callable[[Progress], object], name: str | None
    ) -> Callable[[Progress], object]:
        collected = _OPEN.get()
        if collected is not None:
            collected.definition.hooks.append(Hook(function, name))
        return function

    if callable(of):
        return register(of, None)
    return lambda function: register(function, of)


def samples(source: str) -> Callable[[F], F]:
    """A function that returns sample records for the pipeline: dicts, text or bytes.

    With them `ottla run` needs no broker: if none is named it starts one for the run and fills it.
    Samples are never written to any other broker.
    """

    def register(function: F) -> F:
        collected = _OPEN.get()
        if collected is not None:
            collected.definition.samples[source] = function
        return function

    return register


def _texts(options: Mapping[str, object] | None) -> dict[str, str]:
    """Options as text for Spark: true, not True."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (options or {}).items()
    }
