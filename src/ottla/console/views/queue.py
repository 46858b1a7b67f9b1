"""One queue: its windows, members and settings; and the window of one of its partitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ottla.client.cluster.view import TopicPartition
from ottla.console import capabilities as can
from ottla.console import window
from ottla.console.lag import UNKNOWN_COURSE
from ottla.console.missing import NOT_ASKED, Known, Missing
from ottla.console.views import queues as queues_view
from ottla.console.views.frame import Frame, frame
from ottla.console.views.lags import LagView, lag_view
from ottla.console.window import Column, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.admin.types import ShareWindow, ShareWindowRun
    from ottla.console.attention import Attention
    from ottla.console.look import Look
    from ottla.console.replay import Frame as Kept
    from ottla.console.views.queues import QueueRow

STRIP_COLUMNS: Final = 60
"""Of a window in a list."""
WIDE_COLUMNS: Final = 240
"""Of a window on its own page."""
MOST_RUN_ROWS: Final = 200
"""Runs that the table beside the picture lists; the others are counted."""


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many records are in a state."""

    state: str
    glyph: str
    records: int


@dataclass(frozen=True, slots=True)
class WindowView:
    """A window, drawn `columns` wide."""

    topic: str
    partition: int
    start: int
    end: int
    log_end: int
    in_flight: int
    max_locks: int
    limit: int
    lock_s: float
    stalled_s: float
    is_stalled: bool
    is_full: bool
    cut: bool
    from_state_topic: bool
    offsets_per_column: float
    columns: tuple[Column, ...]
    totals: tuple[StateCount, ...]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueuePartitionRow:
    """A partition of a queue; its window is None if it is not known."""

    name: str
    topic: str
    partition: int
    start: int | None
    lag: LagView | None
    in_flight: int | None
    delivered: int | None
    window: WindowView | None


@dataclass(frozen=True, slots=True)
class QueueMemberRow:
    """A member; `holds` is None if no window is known."""

    id: str
    client_id: str
    host: str
    partitions: int
    holds: int | None


@dataclass(frozen=True, slots=True)
class QueuePage:
    """A queue. `found` is false if the cluster has none of this name."""

    frame: Frame
    name: str
    found: bool
    row: QueueRow | None
    epoch: int | None
    coordinator: int | None
    partitions: Known[tuple[QueuePartitionRow, ...]]
    members: Known[tuple[QueueMemberRow, ...]]
    windows_missing: str
    """Why no window is drawn; empty if they are."""
    why_not: str = ""
    """Why the cluster has no queues at all; empty if it has."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """Offsets in one state."""

    first: int
    last: int
    records: int
    state: str
    glyph: str
    deliveries: int
    holder: str
    lock_s: float | None


@dataclass(frozen=True, slots=True)
class Past:
    """The window some time ago, and how far back it can be shown."""

    ago_s: float
    columns: tuple[Column, ...]
    start: int
    end: int
    log_end: int
    is_stalled: bool


@dataclass(frozen=True, slots=True)
class WindowPage:
    """The window of one partition, with its runs."""

    frame: Frame
    queue: str
    topic: str
    partition: int
    window: Known[WindowView]
    runs: tuple[RunRow, ...]
    more_runs: int
    holders: tuple[tuple[str, int], ...]
    kept_s: float = 0.0
    """How far back the window can be shown."""
    past: Past | None = None
    """As it was when the URL asks for it."""


def page(look: Look, attention: Attention, name: str) -> QueuePage:
    """The page of a queue."""
    data = look.data
    shares, described, windows = (
        data.shares.get(name),
        data.share_members.get(name),
        data.windows.get(name),
    )
    listed = data.groups.value
    found = None
    if not isinstance(listed, Missing):
        found = next((one for one in listed if one.id == name and one.type == "share"), None)
    group = NOT_ASKED if described is None else described.value
    drawn = NOT_ASKED if windows is None else windows.value
    return QueuePage(
        frame=frame(look, attention, [shares.at_ms if shares else None]),
        name=name,
        found=found is not None or isinstance(listed, Missing),
        row=None if found is None else queues_view.row(look, found),
        epoch=None if isinstance(group, Missing) else group.epoch,
        coordinator=None if isinstance(group, Missing) else group.coordinator_id,
        partitions=_partitions(look, name),
        members=_members(look, name),
        windows_missing=drawn.reason if isinstance(drawn, Missing) else "",
        why_not=_why_not(look),
    )


def _why_not(look: Look) -> str:
    """A cluster that has not answered yet may have them."""
    if isinstance(look.data.cluster.value, Missing):
        return ""
    return look.data.capabilities.explain(can.SHARE_GROUPS) or ""


def window_page(
    look: Look,
    attention: Attention,
    name: str,
    topic: str,
    partition: int,
    *,
    zoom: int | None = None,
    frames: Sequence[Kept] = (),
    ago_s: int = 0,
) -> WindowPage:
    """The page of one window; with `zoom` the columns are single offsets around that one."""
    stamped = look.data.windows.get(name)
    around = frame(look, attention, [stamped.at_ms if stamped else None])
    drawn = NOT_ASKED if stamped is None else stamped.value
    if why_not := _why_not(look):
        drawn = Missing(why_not)
    if isinstance(drawn, Missing):
        return WindowPage(around, name, topic, partition, drawn, (), 0, ())
    for one in drawn:
        if (one.topic, one.partition) == (topic, partition):
            runs = window.covered(one)
            holders = window.held_by(one)
            return WindowPage(
                around,
                name,
                topic,
                partition,
                view(one, WIDE_COLUMNS, zoom),
                tuple(_run(one, run) for run in runs[:MOST_RUN_ROWS]),
                max(0, len(runs) - MOST_RUN_ROWS),
                tuple(sorted(holders.items(), key=lambda item: (-item[1], item[0]))),
                (look.now.ms - frames[0].at_ms) / 1000 if frames else 0.0,
                _past(frames, look.now.ms, ago_s) if ago_s else None,
            )
    reason = Missing(f"no member of {name} has fetched from {topic}-{partition} yet")
    return WindowPage(around, name, topic, partition, reason, (), 0, ())


def _past(frames: Sequence[Kept], now_ms: int, ago_s: int) -> Past | None:
    old = [one for one in frames if now_ms - one.at_ms >= ago_s * 1000] or list(frames[:1])
    if not old:
        return None
    one = old[-1]
    return Past(
        (now_ms - one.at_ms) / 1000, one.columns(), one.start, one.end, one.log_end, one.is_stalled
    )


def view(one: ShareWindow, width: int, zoom: int | None = None) -> WindowView:
    """A window as it is drawn; with `zoom` that offset and those behind it, one in each column."""
    shown = one
    if zoom is not None:
        low = min(max(zoom, one.start), max(one.start, one.end - width))
        shown = replace(one, start=low, end=min(one.end, low + width))
    drawn = window.columns(shown, width)
    found = window.totals(one)
    return WindowView(
        topic=one.topic,
        partition=one.partition,
        start=one.start,
        end=one.end,
        log_end=one.log_end,
        in_flight=sum(count for state, count in found.items() if state in window.HELD),
        max_locks=one.max_locks,
        limit=one.limit,
        lock_s=one.lock_ms / 1000,
        stalled_s=one.stalled_ms / 1000,
        is_stalled=window.is_stalled(one),
        is_full=window.is_full(one),
        cut=one.cut,
        from_state_topic=one.source == "state topic",
        offsets_per_column=(shown.end - shown.start) / len(drawn) if drawn else 0.0,
        columns=drawn,
        totals=tuple(
            StateCount(state.word, state.glyph, found[state]) for state in State if state in found
        ),
        why=window.why(one),
    )


def _run(one: ShareWindow, run: ShareWindowRun) -> RunRow:
    state = window.state_of(run, one.limit)
    is_held = state in window.HELD
    holder = one.members[run.member] if 0 <= run.member < len(one.members) else ""
    return RunRow(
        run.first,
        run.last,
        run.records,
        state.word,
        state.glyph,
        run.deliveries,
        holder if is_held else "",
        run.lock_ms / 1000 if is_held else None,
    )


def _partitions(look: Look, name: str) -> Known[tuple[QueuePartitionRow, ...]]:
    shares = look.data.shares.get(name)
    if shares is None:
        return NOT_ASKED
    if isinstance(shares.value, Missing):
        return shares.value
    windows = look.data.windows.get(name)
    drawn: dict[tuple[str, int], WindowView] = {}
    if windows is not None and not isinstance(windows.value, Missing):
        drawn = {(one.topic, one.partition): view(one, STRIP_COLUMNS) for one in windows.value}
    rows = []
    for one in shares.value:
        behind = None
        if one.start_offset is not None:
            behind = look.behind(TopicPartition(one.topic, one.partition), one.start_offset)
        lag = lag_view(behind, UNKNOWN_COURSE)
        rows.append(
            QueuePartitionRow(
                name=f"{one.topic}-{one.partition}",
                topic=one.topic,
                partition=one.partition,
                start=one.start_offset,
                lag=lag if isinstance(lag, LagView) else None,
                in_flight=one.in_flight,
                delivered=one.delivered,
                window=drawn.get((one.topic, one.partition)),
            )
        )
    return tuple(rows)


def _members(look: Look, name: str) -> Known[tuple[QueueMemberRow, ...]]:
    described = look.data.share_members.get(name)
    if described is None:
        return NOT_ASKED
    if isinstance(described.value, Missing):
        return described.value
    windows = look.data.windows.get(name)
    held: dict[str, int] | None = None
    if windows is not None and not isinstance(windows.value, Missing):
        held = {}
        for one in windows.value:
            for member, count in window.held_by(one).items():
                held[member] = held.get(member, 0) + count
    return tuple(
        QueueMemberRow(
            one.id,
            one.client_id,
            one.client_host,
            len(one.assignment),
            None if held is None else held.get(one.id, 0),
        )
        for one in sorted(described.value.members, key=lambda one: (one.client_id, one.id))
    )
