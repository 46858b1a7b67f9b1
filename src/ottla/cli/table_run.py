"""`ottla table run`: the worker in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import Json, fail, security, sentences
from ottla.cli.output import print_json
from ottla.cli.table_place import Place, Registry, placed_for_good, shown_offsets

if TYPE_CHECKING:
    from ottla.tables.topics import Shard


@placed_for_good
def run(
    place: Place,
    topics: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Only these topics. [default: all with a table]"),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Only the K-th of N shares of the tables, such as 0/4. Counts from 0.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Take what is there now, then stop.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="Serve /metrics on 127.0.0.1; 0: a free port."
        ),
    ] = None,
    registry: Registry = None,
    as_json: Json = False,
) -> None:
    """Write the tables of topics that have ottla.table.enable=true, until stopped.

    \b
    Examples:
        ottla topic alter orders --config ottla.table.enable=true
        ottla table run --warehouse s3://lake/tables --catalog postgresql://db/lake
        ottla table run --once --topics orders
        ottla table run --shard 0/2 --metrics-port 9404
        ottla table run --bootstrap kafka:9092 --registry http://registry:8081
    """
    import logging

    logging.basicConfig(format="ottla: %(message)s", level=logging.WARNING)
    names = None if topics is None else [one.strip() for one in topics.split(",")]
    if names is not None and not all(names):
        raise typer.BadParameter(
            f"expected names such as a,b, got {topics!r}", param_hint="--topics"
        )
    place = place.at_registry(registry)
    reached = _work(place, names, _shard(shard), metrics_port, once=once)
    if not once:
        return
    if reached is None:
        fail("stopped before all was taken; what was committed stays, and the next run goes on")
    missing = sorted({*(names or ())} - reached.keys())
    if missing and shard is None:
        fail(f"{missing[0]} has no table; set ottla.table.enable=true on the topic")
    if as_json:
        print_json({topic: {str(one): at for one, at in p.items()} for topic, p in reached.items()})
        return
    for topic, position in reached.items():
        typer.echo(f"{topic}: {shown_offsets(position)}")
    if not reached:
        typer.echo("no topic has a table; set ottla.table.enable=true on one")


def _shard(text: str | None) -> Shard | None:
    from ottla.tables.errors import BadTableSetting
    from ottla.tables.topics import parse_shard

    try:
        return None if text is None else parse_shard(text)
    except BadTableSetting as error:
        raise typer.BadParameter(str(error), param_hint="--shard") from None


def _work(
    place: Place,
    topics: list[str] | None,
    shard: Shard | None,
    metrics_port: int | None,
    *,
    once: bool,
) -> dict[str, dict[int, int]] | None:
    """The positions that were reached; None if a signal came first."""
    import asyncio
    import signal

    from ottla.errors import OttlaError
    from ottla.tables.memory import give_back
    from ottla.tables.worker import Worker
    from ottla.tables.worker_metrics import serve_metrics

    give_back()

    async def work() -> dict[str, dict[int, int]]:
        worker = Worker(
            place.bootstrap,
            place.settings,
            topics=topics,
            shard=shard,
            overrides=place.file.topics,
            security=security(),
            patient=not once,
        )
        async with worker, serve_metrics(worker.metrics, metrics_port) as port:
            if port is not None:
                typer.echo(f"ottla: metrics on http://127.0.0.1:{port}/metrics", err=True)
            if once:
                reached = await worker.run_once()
                return {topic: dict(position) for topic, position in reached.items()}
            await worker.run()
        return {}

    async def stoppable() -> dict[str, dict[int, int]] | None:
        task = asyncio.ensure_future(work())
        loop = asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            return None

    try:
        with sentences():
            return asyncio.run(stoppable())
    except OttlaError as error:
        fail(error)
