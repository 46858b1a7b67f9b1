"""`ottla top`: a running cluster in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.common import DEFAULT_BOOTSTRAP, Bootstrap, sentences
from ottla.cli.common import security as given_security
from ottla.cli.top_state import VIEWS, TopState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.cli.top_screen import Page
    from ottla.client.admin.types import GroupListing
    from ottla.console.clusters import Cluster
    from ottla.console.views.table import Query

EXAMPLES: Final = """\b
Examples:
    ottla top
    ottla top groups --interval 5
    ottla top --once
    ottla top --once --json | jq .findings
"""
PLAIN_HEIGHT: Final = 1_000_000
"""Lines without a terminal: nothing is cut."""
ROWS: Final = 200
"""Rows of a list: more do not fit on a screen."""
SHORTEST: Final = 0.1
DESCRIBED: Final = 20
"""Groups and queues that are described: each costs a request or two, and a screen has few rows."""
DESCRIBED_MS: Final = 10_000
WINDOW_MS: Final = 5_000
FIRST_S: Final = 0.05
REDRAW_S: Final = 0.5
"""The screen is drawn again after this time, for ages and a new size of the terminal."""


def top(
    view: Annotated[
        str, typer.Argument(metavar="[VIEW]", help=f"First view: {', '.join(VIEWS)}.")
    ] = "overview",
    once: Annotated[
        bool, typer.Option("--once", help="Print one screen, after two samples, and exit.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=SHORTEST, metavar="SECONDS", help="Time of a sample.")
    ] = 2.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object a sample: the view, on one line.")
    ] = False,
) -> None:
    """Watch a cluster: what needs attention, topics, lags, queues. Reads only.

    Works with Apache Kafka, too. Without a terminal it prints one screen, as with --once.
    """
    if view not in VIEWS:
        raise typer.BadParameter(f"{view!r:.40} is not one of {', '.join(VIEWS)}")
    import asyncio

    is_live = sys.stdin.isatty() and sys.stdout.isatty() and not once and not as_json
    runs_on = as_json and not once
    with sentences():
        try:
            asyncio.run(_top(TopState(view=view), bootstrap, interval, is_live, runs_on, as_json))
        except KeyboardInterrupt:
            return  # how people leave it


async def _top(
    state: TopState, bootstrap: str, interval: float, is_live: bool, runs_on: bool, as_json: bool
) -> None:
    from ottla.console.clusters import Cluster, ClusterSettings

    cluster = Cluster(ClusterSettings("local", bootstrap, given_security()), tick_s=interval)
    try:
        assert cluster.client is not None
        # Fail at once if no broker is running.
        await cluster.client.connection_to("any")
        if is_live:
            await _live(cluster, state, interval)
        else:
            await _plain(cluster, state, interval, runs_on=runs_on, as_json=as_json)
    finally:
        await cluster.close()


async def _plain(
    cluster: Cluster, state: TopState, interval: float, *, runs_on: bool, as_json: bool
) -> None:
    """Without keys: one screen, or a JSON object for each sample."""
    import asyncio

    await sample(cluster, state)
    while True:
        await asyncio.sleep(interval)
        await sample(cluster, state)
        page = page_of(cluster, state)
        if as_json:
            import json

            from ottla.console.plain import plain

            sys.stdout.write(json.dumps(plain(page), ensure_ascii=False) + "\n")
            sys.stdout.flush()
        else:
            _print(page, state)
        if not runs_on:
            return


def _print(page: Page, state: TopState) -> None:
    from dataclasses import replace

    from rich.console import Console

    from ottla.cli.output import UNBOUNDED
    from ottla.cli.top_screen import draw

    console = Console(width=None if sys.stdout.isatty() else UNBOUNDED, highlight=False)
    console.print(draw(page, replace(state, row=-1), PLAIN_HEIGHT))


async def _live(cluster: Cluster, state: TopState, interval: float) -> None:
    """The alternate screen, until `q`."""
    import asyncio

    from rich.console import Console
    from rich.live import Live

    from ottla.cli.keys import Keys
    from ottla.cli.top_screen import draw
    from ottla.cli.top_state import after

    console = Console(highlight=False)
    with (
        Keys() as keys,
        Live(console=console, screen=True, auto_refresh=False, transient=True) as live,
    ):

        def show() -> None:
            page = page_of(cluster, state)
            drawn = draw(page, state, console.size.height, command(cluster, state))
            live.update(drawn, refresh=True)

        sampling = asyncio.ensure_future(_sample_on(cluster, interval, lambda: state))
        try:
            while not state.is_done:
                show()
                is_new = cluster.look().data.cluster.at_ms is None
                key = await keys.next(FIRST_S if is_new else min(interval, REDRAW_S))
                if key is not None:
                    state = after(state, key, names(cluster, state))
                if sampling.done():
                    sampling.result()
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)


async def _sample_on(cluster: Cluster, interval: float, state: Callable[[], TopState]) -> None:
    import asyncio

    while True:
        if not state().is_paused:
            await sample(cluster, state())
        await asyncio.sleep(interval)


async def sample(cluster: Cluster, state: TopState) -> None:
    """Ask for what the view shows."""
    from ottla.console.missing import Missing
    from ottla.console.snapshot import WATCHED_KINDS, Kind

    snapshot = cluster.snapshot
    snapshot.want(Kind.CLUSTER, Kind.GROUPS, Kind.NODES, Kind.LOG_DIRS, Kind.TRANSACTIONS)
    await snapshot.refresh(*WATCHED_KINDS)
    names = [name for name, topic in snapshot.data.topics.items() if not topic.is_internal]
    for name in names[:ROWS]:
        cluster.sampler.watch(snapshot.data.partitions(name))
    await cluster.tick()
    groups = snapshot.data.groups.value
    listed: Sequence[GroupListing] = [] if isinstance(groups, Missing) else groups
    queues = [one.id for one in listed if one.type == "share"]
    others = [one.id for one in listed if one.type in ("classic", "consumer")]
    for name in others[:DESCRIBED]:
        await snapshot.refresh_group(name, DESCRIBED_MS)
    for name in queues[:DESCRIBED]:
        await snapshot.refresh_queue(name, DESCRIBED_MS)
        await snapshot.refresh_windows(name, WINDOW_MS)
    if state.detail and state.view == "groups":
        await snapshot.refresh_group(state.detail, 0)
        await snapshot.refresh_stamps(state.detail)
    if state.detail and state.view == "queues":
        await snapshot.refresh_queue(state.detail, 0)
        await snapshot.refresh_windows(state.detail, 0)
        await snapshot.refresh_stamps(state.detail)


def page_of(cluster: Cluster, state: TopState) -> Page:
    """The page that the state asks for."""
    from ottla.console.views import (
        group,
        groups,
        overview,
        pipelines,
        queue,
        queues,
        topic,
        topics,
        transactions,
    )

    look, attention = cluster.look(), cluster.attention()
    chosen = state.detail
    query = _query(state)
    match state.view:
        case "topics" if chosen:
            return topic.page(look, attention, chosen)
        case "topics":
            return topics.page(look, attention, query)
        case "groups" if chosen:
            return group.page(look, attention, chosen)
        case "groups":
            return groups.page(look, attention, query)
        case "queues" if chosen:
            return queue.page(look, attention, chosen)
        case "queues":
            return queues.page(look, attention, query)
        case "transactions":
            return transactions.page(look, attention, query)
        case "pipelines" if chosen:
            return pipelines.pipeline_page(look, attention, chosen)
        case "pipelines":
            return pipelines.page(look, attention, query)
        case _:
            return overview.page(look, attention)


def names(cluster: Cluster, state: TopState) -> list[str]:
    """The names in the rows of the list."""
    from dataclasses import replace

    from ottla.console.views.table import Table

    listed = page_of(cluster, replace(state, detail=""))
    found = getattr(listed, state.view, None)
    return [row.name for row in found.rows] if isinstance(found, Table) else []


def command(cluster: Cluster, state: TopState) -> str:
    """The command that prints the same as the chosen row."""
    import shlex

    from ottla.console.text import visible

    kind = {"topics": "topic", "groups": "group", "queues": "share-group"}.get(state.view)
    listed = names(cluster, state) if kind else []
    name = state.detail or (listed[min(state.row, len(listed) - 1)] if listed else "")
    words = ["ottla", kind, "describe", visible(name)] if kind and name else ["ottla", "top"]
    if state.view == "transactions":
        words = ["ottla", "transaction", "list"]
    if state.view == "pipelines":
        words = ["ottla", "top", "--once", "pipelines"]
    if kind and not name:
        words = ["ottla", kind, "list"]
    return shlex.join([*words, "--bootstrap", cluster.settings.bootstrap])


def _query(state: TopState) -> Query:
    from ottla.console.views.table import Query

    sort, descending = state.order
    return Query(contains=state.contains, sort=sort, descending=descending, rows=ROWS)
