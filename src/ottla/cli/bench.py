"""`ottla bench`: measure the speed of a broker from this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    fail,
    security,
    sentences,
)
from ottla.cli.output import print_list

if TYPE_CHECKING:
    from ottla.testing.measure import Figure

EXAMPLES = """
Examples:

  ottla bench                                     a million records of 100 bytes

  ottla bench --records 100000 --size 1024 --partitions 12 --json
"""


def bench(
    records: Annotated[int, typer.Option(min=1, help="How many records.")] = 1_000_000,
    size: Annotated[int, typer.Option(min=0, max=900_000, help="Bytes of each value.")] = 100,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic.")] = 6,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Measure how fast this machine writes, reads and shares records through a broker.

    Creates a topic for it. The clients run in this process: figures include client and broker.
    """
    import asyncio

    from ottla.testing.measure import Figure, Stalled, measure

    async def run() -> list[Figure]:
        found = []
        async for figure in measure(
            bootstrap,
            records=records,
            size=size,
            partitions=partitions,
            api_timeout=timeout,
            security=security(),
        ):
            typer.echo(f"{figure.what}: done", err=True)
            found.append(figure)
        return found

    with sentences():
        try:
            figures = asyncio.run(run())
        except Stalled as error:
            fail(error)
    print_list("figures", [one._asdict() for one in figures], Figure._fields, as_json=as_json)
