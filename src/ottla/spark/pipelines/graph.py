"""The graph of a pipeline: inputs, order, and all checks.

Inline flows are part of every query that reads them; a query is a flow that writes. Everything here
is decided before Spark is started.
"""

from __future__ import annotations

import difflib
import inspect
from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.spark.pipelines.errors import DefinitionError
from ottla.spark.pipelines.model import (
    DELIVERIES,
    EXACTLY_ONCE,
    INVALID,
    MODES,
    OUR_FORMAT,
    Definition,
    Flow,
    FromRegistry,
    Source,
    ToConsole,
    ToTable,
    ToTopic,
    seconds,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ottla.spark.pipelines.places import Places
    from ottla.spark.pipelines.settings import Settings

ASYNC_PROGRESS: Final = "asyncprogresstrackingenabled"
SINK_ID: Final = "sinkid"
SPECULATION: Final = "spark.speculation"


def problems_of(definition: Definition, settings: Settings, places: Places) -> list[str]:
    """One sentence per problem; empty if the pipeline can run."""
    if not definition.flows:
        return ["the file declares no flow: decorate a function with @flow"]
    found = [*_unknown_names(definition), *_circles(definition)]
    if found:  # later checks follow the edges
        return found
    for source in definition.sources.values():
        found += _source_problems(source)
    for flow in definition.flows.values():
        found += _flow_problems(flow)
    return [
        *found,
        *_loops_through_topics(definition),
        *_not_streams(definition, places),
        *_shared_tables(definition, places),
        *_shared_checkpoints(definition, places),
        *_shared_queues(definition),
        *_async_progress(definition, settings),
        *_shared_sinks(definition),
        *_speculation(definition, settings),
        *_stray_names(definition),
    ]


def queries(definition: Definition) -> list[Flow]:
    """The flows that run, in the order of the file."""
    return [flow for flow in definition.flows.values() if not flow.inline]


def sources_of(definition: Definition, flow: Flow) -> list[Source]:
    """The sources in a flow's query, through inline flows."""
    inputs = _inputs(definition, flow)
    return [definition.sources[name] for name in inputs if name in definition.sources]


def upstream_of(definition: Definition, flow: Flow) -> list[str]:
    """The other queries whose output a flow's query reads."""
    return [name for name in _inputs(definition, flow) if name in definition.flows]


def ordered(definition: Definition) -> list[Flow]:
    """The queries in the order of their dependencies."""
    done: dict[str, Flow] = {}

    def visit(flow: Flow) -> None:
        if flow.name not in done:
            for name in upstream_of(definition, flow):
                visit(definition.flows[name])
            done[flow.name] = flow

    for flow in queries(definition):
        visit(flow)
    return list(done.values())


def chosen(definition: Definition, names: list[str]) -> list[Flow]:
    """The queries to run, all of them if none is named."""
    running = {flow.name: flow for flow in ordered(definition)}
    for name in names:
        if name not in running:
            because = "is inline and runs with its readers" if name in definition.flows else "is no"
            raise DefinitionError(f"--flow {name} {because} flow; there are {', '.join(running)}")
    return [flow for name, flow in running.items() if not names or name in names]


def refuse_backfill(definition: Definition, flows: Sequence[Flow]) -> None:
    """Raise if one of the flows reads a table and cannot begin with a batch over it."""
    reading = [flow for flow in flows if reads_table(definition, flow)]
    if not reading:
        raise DefinitionError("--backfill: no flow reads a table: declare source(..., table=TOPIC)")
    problems = [one for flow in reading for one in _backfill_problems(definition, flow)]
    if problems:
        raise DefinitionError(*problems)


def _backfill_problems(definition: Definition, flow: Flow) -> Iterator[str]:
    name = f"--backfill: flow {flow.name}"
    inputs = _inputs(definition, flow)
    if len(inputs) > 1:
        yield f"{name} reads {' and '.join(inputs)}, and a batch is over one table"
    for source in sources_of(definition, flow):
        if source.start != "earliest":
            yield f"{name} reads {source.name} from {source.start}, not from the table's start"
    if flow.mode != "append":
        yield f"{name} is written in mode {flow.mode}, not append"
    if flow.delivery == EXACTLY_ONCE and isinstance(flow.writes, ToTopic):
        yield f"{name} writes its topic exactly once, which takes the batches of a stream"
    if isinstance(flow.writes, ToTable) and not flow.writes.is_iceberg:
        yield (
            f"{name} writes files whose log knows the batches of a stream alone: "
            'give its table format="iceberg"'
        )


def reads_table(definition: Definition, flow: Flow) -> bool:
    """Whether a query reads the table of a topic."""
    return any(source.table is not None for source in sources_of(definition, flow))


def reads_queue(definition: Definition, flow: Flow) -> bool:
    """Whether a query is a member of a share group."""
    return any(source.share_group for source in sources_of(definition, flow))


def edges(definition: Definition) -> Iterator[tuple[str, str]]:
    """The edges of the graph: (from, to)."""
    for source in definition.sources.values():
        if source.topic is not None:
            queue = f" as {source.share_group}" if source.share_group else ""
            yield f"topic {source.topic}{queue}", source.name
        if source.table is not None:
            yield f"table of topic {source.table}", source.name
    for flow in definition.flows.values():
        for name in flow.reads:
            yield name, flow.name
        if flow.writes is not None:
            yield flow.name, describe(flow.writes)
        if flow.reject is not None:
            yield flow.name, f"{describe(flow.reject.to)} (rejected)"


def describe(target: ToTopic | ToTable | ToConsole) -> str:
    """A short name of a target."""
    if isinstance(target, ToConsole):
        return "console"
    return f"{'topic' if isinstance(target, ToTopic) else 'table'} {target.name}"


def _inputs(definition: Definition, flow: Flow) -> list[str]:
    found: dict[str, None] = {}
    for name in flow.reads:
        read = definition.flows.get(name)
        inside = _inputs(definition, read) if read is not None and read.inline else [name]
        found.update(dict.fromkeys(inside))
    return list(found)


def _unknown_names(definition: Definition) -> Iterator[str]:
    known = [*definition.sources, *definition.flows]
    for flow in definition.flows.values():
        for name in flow.reads:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
                yield f"flow {flow.name} reads {name}, which is not declared; {meant}"


def _circles(definition: Definition) -> Iterator[str]:
    edges_of = {flow.name: flow.reads for flow in definition.flows.values()}
    circle = _find_circle(edges_of)
    if circle:
        yield f"flows read each other in a cycle: {' <- '.join(circle)}; take one of them out"


def _loops_through_topics(definition: Definition) -> Iterator[str]:
    """Cycles through a topic: a source reads what one of its own flows writes."""
    edges_of: dict[str, list[str]] = {}
    for flow in definition.flows.values():
        edges_of[f"flow {flow.name}"] = [
            f"{'flow' if name in definition.flows else 'source'} {name}" for name in flow.reads
        ]
        for target in flow.topics_written():
            edges_of.setdefault(f"topic {target.name}", []).append(f"flow {flow.name}")
    for source in definition.sources.values():
        edges_of[f"source {source.name}"] = [f"topic {name}" for name in topics_of(source)]
    circle = _find_circle(edges_of)
    if circle:
        yield f"records would cycle endlessly: {' <- '.join(circle)}; write to another topic"


def _find_circle(edges_of: Mapping[str, list[str] | tuple[str, ...]]) -> list[str]:
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        for following in edges_of.get(name, ()):
            circle = walk(following, [*way, name])
            if circle:
                return circle
        done.add(name)
        return []

    return next((circle for name in edges_of if (circle := walk(name, []))), [])


def topics_of(source: Source) -> list[str]:
    """The topics a source names."""
    if source.table is not None:
        return [source.table]
    return [name.strip() for name in (source.topic or "").split(",") if name.strip()]


def _source_problems(source: Source) -> Iterator[str]:
    ours = source.format == OUR_FORMAT
    selects = {"subscribepattern", "assign", "subscribe"} & {one.lower() for one in source.options}
    if source.needs_broker and not topics_of(source) and not selects:
        yield f"source {source.name} has no topic: give it topic=..."
    if not ours and (topics_of(source) or source.share_group is not None):
        yield (
            f"source {source.name}: topic, table and share_group are for format ottla, not others"
        )
    if source.table is not None and (
        selects or source.topic or source.share_group or source.schema or not source.needs_broker
    ):
        yield (
            f"source {source.name} reads the table of a topic, which has columns of its own: leave "
            "topic, share_group, schema and options that choose topics or stores out"
        )
    if isinstance(source.schema, FromRegistry):
        if source.share_group is not None or not source.needs_broker or not topics_of(source):
            yield (
                f"source {source.name}: a schema of a registry is for topics of a broker that are "
                "named, and not for queues"
            )
        if source.schema.invalid not in INVALID:
            yield (
                f"source {source.name}: invalid is one of {', '.join(INVALID)}, not "
                f"{source.schema.invalid!r}"
            )


def _flow_problems(flow: Flow) -> Iterator[str]:
    name = f"flow {flow.name}"
    if not flow.reads:
        yield f"{name} reads nothing: give it reads=[...]"
    if flow.inline and flow.writes is not None:
        yield f"{name} is inline and writes: take one of the two out"
    if not flow.inline and flow.writes is None:
        yield f"{name} writes nothing: give it writes=..., or inline=True"
    if flow.inline and flow.reject is not None:
        yield f"{name} is inline: put @reject on the flow that writes"
    if flow.mode not in MODES:
        yield f"{name}: mode is one of {', '.join(MODES)}, not {flow.mode!r}"
    if flow.delivery not in DELIVERIES:
        yield f"{name}: delivery is one of {', '.join(DELIVERIES)}, not {flow.delivery!r}"
    elif flow.delivery == EXACTLY_ONCE and not _can_be_exact(flow):
        yield f"{name}: delivery=exactly-once is for topics in mode append, without @reject"
    if flow.trigger is not None:
        try:
            seconds(flow.trigger, f"{name}: trigger")
        except DefinitionError as error:
            yield str(error)
    yield from _target_problems(flow)
    yield from _parameter_problems(flow)


def _target_problems(flow: Flow) -> Iterator[str]:
    name = f"flow {flow.name}"
    if isinstance(flow.writes, ToTable) and flow.writes.is_iceberg:
        if flow.mode == "update":
            yield f"{name}: an Iceberg table is written in mode append or complete, not update"
        if flow.reject is not None:
            yield f"{name}: an Iceberg table is written exactly once, which @reject is not"
    if isinstance(flow.writes, ToTopic) and flow.writes.schema is not None and flow.reject:
        yield f"{name}: @reject is not for topics with a schema: write them by a flow of their own"


def _can_be_exact(flow: Flow) -> bool:
    if isinstance(flow.writes, ToTable):
        return flow.writes.is_iceberg
    return flow.reject is None and isinstance(flow.writes, ToTopic) and flow.mode == "append"


def _not_streams(definition: Definition, places: Places) -> Iterator[str]:
    """Options of Iceberg tables, and flows that read what cannot be read as a flow's output."""
    from ottla.spark.pipelines.iceberg_sink import flow_table

    for flow in definition.flows.values():
        if isinstance(flow.writes, ToTable) and flow.writes.is_iceberg:
            try:
                flow_table(places, flow.writes)
            except DefinitionError as error:
                yield f"flow {flow.name}: {error}"
        for name in upstream_of(definition, flow):
            target = definition.flows[name].writes
            if isinstance(target, ToTable) and target.is_iceberg:
                yield (
                    f"flow {flow.name} reads {name}, which writes an Iceberg table, and that is "
                    f"not a stream: read what {name} reads, or have it write a topic"
                )
            if isinstance(target, ToTopic) and target.schema is not None:
                yield (
                    f"flow {flow.name} reads {name}, whose topic has a schema: declare "
                    f"source(..., topic={target.name!r}, schema=registry()) and read that"
                )


def _parameter_problems(flow: Flow) -> Iterator[str]:
    if (flow.function is None) == (flow.sql is None):
        yield f"flow {flow.name} needs either a function or `sql`, and not both"
    elif flow.function is not None:
        parameters = set(inspect.signature(flow.function).parameters)
        wanted = {parameter_for(name) for name in flow.reads}
        if parameters != wanted:
            yield (
                f"flow {flow.name} reads {', '.join(flow.reads)}, so its function takes "
                f"({', '.join(sorted(wanted))}), not ({', '.join(sorted(parameters))})"
            )


def parameter_for(name: str) -> str:
    """The name of the parameter that gets the frame of a node."""
    return name.replace("-", "_").replace(".", "_")


def _shared_tables(definition: Definition, places: Places) -> Iterator[str]:
    writers: dict[str, list[str]] = {}
    for flow in queries(definition):
        if isinstance(flow.writes, ToTable):
            writers.setdefault(places.table(flow.writes), []).append(flow.name)
    for path, names in writers.items():
        if len(names) > 1:
            yield f"flows {' and '.join(names)} write to one table ({path}): give each its own"


def _shared_checkpoints(definition: Definition, places: Places) -> Iterator[str]:
    taken = {flow.name: places.checkpoint(flow).rstrip("/") for flow in queries(definition)}
    for name, path in taken.items():
        for other, beside in taken.items():
            same = path == beside and name < other
            if same or beside.startswith(path + "/"):
                how = "have one checkpoint" if same else "have checkpoints inside each other"
                yield f"flows {name} and {other} {how} ({beside}): give each its own"


def _shared_queues(definition: Definition) -> Iterator[str]:
    readers = Counter(
        source.name
        for flow in queries(definition)
        for source in sources_of(definition, flow)
        if source.share_group
    )
    for name, count in readers.items():
        if count > 1:
            yield (
                f"{count} flows read the queue {name}, and each record would go to one of them "
                "alone: write it to a topic first, and have them read that"
            )


def _async_progress(definition: Definition, settings: Settings) -> Iterator[str]:
    conf = {name.lower().rpartition(".")[2]: value for name, value in settings.spark.items()}
    for flow in queries(definition):
        options = {**conf, **{one.lower(): value for one, value in flow.options.items()}}
        if options.get(ASYNC_PROGRESS, "").lower() != "true":
            continue
        if reads_queue(definition, flow):
            yield (
                f"flow {flow.name} reads a queue with asynchronous progress tracking, which would "
                "settle records before their batch is safe: take asyncProgressTrackingEnabled out"
            )
        if flow.is_exactly_once:
            yield (
                f"flow {flow.name} is delivered exactly once with asynchronous progress tracking, "
                "after which a batch may have other rows when it is repeated: take "
                "asyncProgressTrackingEnabled out"
            )


def _shared_sinks(definition: Definition) -> Iterator[str]:
    """Two flows with one sink id would abort each other's transactions."""
    writers: dict[str, list[str]] = {}
    for flow in queries(definition):
        for name, value in _sink_options(flow).items():
            if name.lower() == SINK_ID:
                writers.setdefault(value, []).append(flow.name)
    for sink_id, names in writers.items():
        if len(names) > 1:
            yield f"flows {' and '.join(names)} have one sinkId ({sink_id}): give each its own"


def _sink_options(flow: Flow) -> dict[str, str]:
    target = flow.writes.options if isinstance(flow.writes, ToTopic) else {}
    return {**target, **flow.options}


def _speculation(definition: Definition, settings: Settings) -> Iterator[str]:
    if settings.spark.get(SPECULATION, "false").lower() == "true":
        for flow in queries(definition):
            if flow.delivery == EXACTLY_ONCE:
                yield (
                    f"flow {flow.name} is delivered exactly once, and spark.speculation would have "
                    "tasks write twice: take it out of the settings"
                )


def _stray_names(definition: Definition) -> Iterator[str]:
    for hook in definition.hooks:
        if hook.flow is not None and hook.flow not in definition.flows:
            yield f"@on_batch names the flow {hook.flow}, which is not declared"
    for name in definition.samples:
        if name not in definition.sources or not topics_of(definition.sources[name]):
            yield f"@samples names {name}, which is no source with a topic"
