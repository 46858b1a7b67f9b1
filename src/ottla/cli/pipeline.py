"""`ottla pipeline ...`: check a pipeline, draw it, show its progress, reset a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli import pipeline_checkpoint
from ottla.cli.common import DEFAULT_BOOTSTRAP, Json, complain
from ottla.cli.output import print_json, print_table
from ottla.cli.run import Debug, Env, File, PipelineBootstrap, State, loaded, sentences
from ottla.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.cli.output import Cell, Value
    from ottla.spark.pipelines.load import Pipeline

app = typer.Typer(
    help="Check a pipeline, draw it, show its progress, reset a flow.",
    no_args_is_help=True,
)
app.add_typer(pipeline_checkpoint.app, name="checkpoint")


@app.command()
def check(
    file: File,
    env: Env = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also start Spark: check plans, schemas and routes."),
    ] = False,
    bootstrap: PipelineBootstrap = None,
    state: State = None,
    master: Annotated[str | None, typer.Option("--master", help="A Spark master.")] = None,
    remote: Annotated[str | None, typer.Option("--remote", help="A Connect server.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check a pipeline without running it. Status 2: errors; 4: Java, broker or topic is missing.

    \b
    Examples:
        ottla pipeline check orders.py
        ottla pipeline check orders.py --env prod --deep
    """
    with sentences(debug=debug):
        from ottla.spark.pipelines.graph import ordered
        from ottla.spark.pipelines.typed_check import check_columns

        pipeline = loaded(file, env=env, state=state)
        flows = ordered(pipeline.definition)
        names = [flow.name for flow in flows]
        named = bootstrap or pipeline.settings.bootstrap or DEFAULT_BOOTSTRAP
        columns = check_columns(pipeline, flows, named)
        found: dict[str, Value] = {
            "file": str(file),
            "flows": names,
            "sources": {
                name: [f"{one.name} {one.type}" for one in schema]
                for name, schema in columns.items()
            },
        }
        if deep:
            from ottla.spark.pipelines.deep_check import deep_check

            found["schemas"] = dict(deep_check(pipeline, named, master=master, remote=remote))
    if as_json:
        print_json(found)
    else:
        for name, schema in (found.get("schemas") or {}).items():  # type: ignore[union-attr]  # a dict, put there above
            typer.echo(f"{name}: {schema}")
        typer.echo(f"{file} is well: {len(names)} flow(s), {', '.join(names)}")


@app.command()
def graph(file: File, env: Env = None, as_json: Json = False, debug: Debug = False) -> None:
    """Print what each flow reads and writes.

    \b
    Examples:
        ottla pipeline graph orders.py
        ottla pipeline graph orders.py --json
    """
    with sentences(debug=debug):
        from ottla.spark.pipelines.graph import edges
        from ottla.spark.pipelines.load import load

        found = list(edges(load(file, env=env).definition))
    if as_json:
        print_json([{"from": one, "to": other} for one, other in found])
        return
    width = max(len(one) for one, _ in found)
    for one, other in found:
        typer.echo(f"{one:<{width}}  ->  {other}")


@app.command()
def status(
    file: File,
    env: Env = None,
    bootstrap: PipelineBootstrap = None,
    state: State = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the position of each flow from its checkpoint, and its lag.

    \b
    Examples:
        ottla pipeline status orders.py
        ottla pipeline status orders.py --env prod --json
    """
    with sentences(debug=debug):
        from ottla.spark.pipelines.checkpoints import checkpoint_of, read_checkpoint
        from ottla.spark.pipelines.graph import ordered

        pipeline = loaded(file, env=env, state=state)
        found = {
            flow.name: read_checkpoint(checkpoint_of(pipeline, flow))
            for flow in ordered(pipeline.definition)
        }
    ends = _ends(pipeline, bootstrap, [one for point in found.values() for one in point.offsets])
    rows: list[dict[str, Cell]] = []
    for name, point in found.items():
        age = None if point.changed is None else round(SYSTEM.wall_ms() / 1000 - point.changed)
        rows.append(
            {
                "flow": name,
                "committed": point.committed,
                "planned": point.planned,
                "lag": _lag(point.offsets, ends),
                "seconds_ago": age,
            }
        )
    if as_json:
        offsets = [list(point.offsets) for point in found.values()]
        print_json([{**row, "offsets": at} for row, at in zip(rows, offsets, strict=True)])
    else:
        print_table(rows, ("flow", "committed", "planned", "lag", "seconds_ago"))


@app.command()
def reset(
    file: File,
    flow: Annotated[str, typer.Option("--flow", metavar="NAME", help="The flow to reset.")],
    to: Annotated[
        str,
        typer.Option("--to", help="earliest, latest, a time, or offsets as JSON by topic."),
    ],
    env: Env = None,
    state: State = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Reset a flow: it starts again from another position. Stop it first.

    Its checkpoint, and its table if it writes one, are renamed, not deleted.

    \b
    Examples:
        ottla pipeline reset orders.py --flow totals --to earliest
        ottla pipeline reset orders.py --flow totals --to 2026-01-31T09:00Z
        ottla pipeline reset orders.py --flow totals --to '{"orders": {"0": 1200}}'
    """
    with sentences(debug=debug):
        from ottla.spark.pipelines import checkpoints
        from ottla.spark.pipelines.graph import chosen

        pipeline = loaded(file, env=env, state=state)
        [named] = chosen(pipeline.definition, [flow])
        aside = checkpoints.reset(pipeline, named, to)
    if as_json:
        print_json({"flow": flow, "to": to, "set_aside": list(aside)})
    else:
        for one in aside:
            typer.echo(f"set aside: {one}")
        typer.echo(f"flow {flow} will start from {to}")


def _ends(
    pipeline: Pipeline, bootstrap: str | None, offsets: list[Mapping[str, object]]
) -> dict[tuple[str, int], int]:
    """The ends of these logs; if no broker answers, a warning."""
    topics = sorted({name for one in offsets for name in one if _is_by_topic(one[name])})
    if not topics:
        return {}
    from ottla.client.errors import ClientError
    from ottla.spark.pipelines.preflight import security_of
    from ottla.sync import Admin

    named = bootstrap or pipeline.settings.bootstrap or DEFAULT_BOOTSTRAP
    try:
        by = security_of(pipeline.settings.kafka)
        with Admin(named, api_timeout=3.0, security=by) as admin:
            admin.connect()
            there = {one.name for one in admin.list_topics()}
            found = admin.list_offsets([name for name in topics if name in there])
    except (ClientError, ValueError) as error:
        complain(f"lag is not known: {error}; --bootstrap names another broker")
        return {}
    return {(place.topic, place.partition): one.offset for place, one in found.items()}


def _lag(
    offsets: tuple[Mapping[str, object], ...], ends: Mapping[tuple[str, int], int]
) -> int | None:
    behind = [
        ends[topic, int(partition)] - done
        for one in offsets
        for topic, partitions in one.items()
        if _is_by_topic(partitions) and isinstance(partitions, dict)
        for partition, done in partitions.items()
        if (topic, int(partition)) in ends
    ]
    return sum(max(0, one) for one in behind) if behind else None


def _is_by_topic(partitions: object) -> bool:
    """Whether it is {partition: offset}; reserved keys of an offset hold other things."""
    return isinstance(partitions, dict) and all(
        isinstance(key, str) and key.isdecimal() and type(value) is int
        for key, value in partitions.items()
    )
