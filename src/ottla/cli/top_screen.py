"""The screen of `ottla top`: pages of `ottla.console.views` as text of a terminal's size.

Every name on it may come from a stranger, and is made visible before it is drawn.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ottla.cli.top_state import VIEWS
from ottla.console import figures
from ottla.console.missing import Missing
from ottla.console.text import name as shown
from ottla.console.views.group import GroupPage
from ottla.console.views.groups import GroupRow, GroupsPage
from ottla.console.views.overview import OverviewPage
from ottla.console.views.pipelines import PipelinePage, PipelineRow, PipelinesPage
from ottla.console.views.queue import QueuePage
from ottla.console.views.queues import QueueRow, QueuesPage
from ottla.console.views.topic import TopicPage
from ottla.console.views.topics import TopicRow, TopicsPage
from ottla.console.views.transactions import TransactionRow, TransactionsPage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from rich.console import RenderableType

    from ottla.cli.top_state import TopState
    from ottla.console.views.frame import Frame
    from ottla.console.views.lags import LagView
    from ottla.console.window import Column

    Page: TypeAlias = (
        OverviewPage
        | TopicsPage
        | TopicPage
        | GroupsPage
        | GroupPage
        | QueuesPage
        | QueuePage
        | TransactionsPage
        | PipelinesPage
        | PipelinePage
    )

NAME: Final = 40
"""Characters of a name in a table."""
SPARK: Final = 12
STRIP: Final = 40
LEAST_TABLE: Final = 2
"""Lines of a table: its heading and a row."""
ARROWS: Final = {"growing": "↑", "falling": "↓", "steady": "→", "unknown": " "}
HELP: Final = (
    "1 overview  2 topics  3 groups  4 queues  5 transactions  6 pipelines",
    "j k or arrows  choose a row",
    "Enter          details of the row; Escape leaves them",
    "/              filter by name; Enter ends it, Escape clears it",
    "s              sort by another column",
    "p              pause",
    "c              show the command that prints the same",
    "q              quit",
)


def draw(page: Page, state: TopState, height: int, command: str = "") -> RenderableType:
    """The whole screen, at most `height` lines high."""
    if state.shows_help:
        return Text("\n".join(HELP[: height - 1]))
    head: list[RenderableType] = [_first_line(page, state), _second_line(state)]
    if page.frame.away_s is not None:
        lasts = figures.duration(page.frame.away_s)
        text = f"no answer for {lasts}: {shown(page.frame.away_reason, 120)}"
        head.append(Text(text, style="bold red", no_wrap=True, overflow="ellipsis"))
    if page.frame.replaced_id is not None:
        head.append(Text(f"this is another cluster than before ({shown(page.frame.replaced_id)})"))
    if state.shows_command and command:
        head.append(Text(f"$ {command}", style="bold", no_wrap=True, overflow="ellipsis"))
    return Group(*head, *body(page, state, max(1, height - len(head))))


def _first_line(page: Page, state: TopState) -> Text:
    frame = page.frame
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{shown(frame.cluster)} {shown(frame.bootstrap, 60)}", style="bold")
    if isinstance(page, OverviewPage):
        nodes = page.nodes
        if not isinstance(nodes, Missing):
            line.append(f" · {len(nodes)} node{'s' if len(nodes) != 1 else ''}")
        line.append(f"  in {figures.count(page.in_per_s)} rec/s ")
        line.append(figures.spark(page.in_spark, SPARK), style="cyan")
        line.append(f"  taken {figures.count(page.taken_per_s)}")
    if frame.attention:
        line.append(f"  (!) {frame.attention}", style="bold yellow")
    line.append(f"  {_age(frame)}")
    line.append("  paused" if state.is_paused else "", style="bold")
    line.append("  q quit ? help", style="dim")
    return line


def _age(frame: Frame) -> str:
    return "not answered yet" if frame.age_s is None else f"{figures.duration(frame.age_s)} old"


def _second_line(state: TopState) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for number, view in enumerate(VIEWS, 1):
        is_chosen = view == state.view
        text = f"[{number} {view}]" if is_chosen else f"{number} {view}"
        line.append(f"{text}  ", style="bold" if is_chosen else "")
    if state.contains or state.is_typing:
        line.append(f"/{shown(state.contains)}{'_' if state.is_typing else ''}  ")
    sort, descending = state.order
    if sort:
        line.append(f"sort: {sort} {'↓' if descending else '↑'}", style="dim")
    return line


def body(page: Page, state: TopState, height: int) -> Sequence[RenderableType]:
    """Below the head."""
    match page:
        case OverviewPage():
            return _overview(page, height)
        case TopicsPage():
            found = page.topics
            return (
                [_missing(found)]
                if isinstance(found, Missing)
                else [_topics(found.rows, state, height), _count(found.total, "topics")]
            )
        case GroupsPage():
            listed = page.groups
            return (
                [_missing(listed)]
                if isinstance(listed, Missing)
                else [_groups(listed.rows, state, height), _count(listed.total, "groups")]
            )
        case QueuesPage():
            queues = page.queues
            return (
                [_missing(queues)]
                if isinstance(queues, Missing)
                else [_queues(queues.rows, state, height), _count(queues.total, "queues")]
            )
        case TransactionsPage():
            return _transactions(page, state, height)
        case TopicPage():
            return _topic(page, height)
        case GroupPage():
            return _group(page, height)
        case QueuePage():
            return _queue(page, height)
        case PipelinesPage():
            told = page.pipelines
            return (
                [_missing(told)]
                if isinstance(told, Missing)
                else [_pipelines(told.rows, state, height), _count(told.total, "pipelines")]
            )
        case PipelinePage():
            return _pipeline(page, height)


def _missing(found: Missing) -> Text:
    return Text(found.reason, style="yellow")


def _count(total: int, what: str) -> Text:
    return Text(f"no {what}" if not total else "", style="dim")


def _table(*columns: str) -> Table:
    """Columns that begin with ">" are aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        is_number = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if is_number else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    return table


def _rows(state: TopState, count: int, height: int) -> tuple[int, range]:
    """The chosen row, and the rows that fit below a heading."""
    chosen = min(state.row, count - 1)
    room = max(1, height - 2)
    first = max(0, chosen - room + 1)
    return chosen, range(first, min(count, first + room))


def _overview(page: OverviewPage, height: int) -> list[RenderableType]:
    lines: list[RenderableType] = []
    room = max(1, height // 3)
    for one in page.findings[:room]:
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(one.word, style="bold red").append(f" {one.text}")
        lines.append(line)
    more = len(page.findings) - room + page.more_findings
    if more > 0:
        lines.append(Text(f"and {more} more", style="dim"))
    if not page.findings:
        lines.append(Text("Nothing needs attention", style="green"))
    lines.append(
        Text(
            f"topics {_figure(page.topics)} ({_figure(page.partitions)} partitions)   "
            f"groups {_figure(page.groups)}   queues {_figure(page.queues)}",
            no_wrap=True,
            overflow="ellipsis",
        )
    )
    parts: list[Callable[[int], Table]] = []
    if groups := page.latest_groups:
        parts.append(lambda room: _groups(groups, None, room))
    if queues := page.latest_queues:
        parts.append(lambda room: _queues(queues, None, room))
    if topics := page.busiest_topics:
        parts.append(lambda room: _topics(topics, None, room))
    left = height - len(lines)
    for number, part in enumerate(parts):
        room = left // (len(parts) - number)
        if room >= LEAST_TABLE:
            table = part(room)
            lines.append(table)
            left -= table.row_count + 1
    return lines


def _figure(value: int | Missing) -> str:
    return "?" if isinstance(value, Missing) else f"{value:,}"


def _topics(rows: Sequence[TopicRow], state: TopState | None, height: int) -> Table:
    table = _table("topic", ">partitions", ">records", ">size", ">rec/s", "10 min")
    chosen, which = _window(rows, state, height)
    for index in which:
        one = rows[index]
        partitions = f"{one.partitions}" + (f" ({one.offline} down)" if one.offline else "")
        table.add_row(
            Text(shown(one.name, NAME)),
            Text(partitions),
            Text(figures.count(one.records)),
            Text(figures.size(one.size_bytes)),
            Text(figures.count(one.records_per_s)),
            Text(figures.spark(one.spark, SPARK), style="cyan"),
            style="reverse" if index == chosen else "",
        )
    return table


def _groups(rows: Sequence[GroupRow], state: TopState | None, height: int) -> Table:
    table = _table("group", "type", "state", ">members", ">lag", ">behind", "", "10 min")
    chosen, which = _window(rows, state, height)
    for index in which:
        one = rows[index]
        records, seconds, arrow = lag_cells(one.lag)
        table.add_row(
            Text(shown(one.name, NAME)),
            Text(shown(one.kind, 18)),
            Text(shown(one.state, 20)),
            Text(figures.whole(one.members)),
            Text(records),
            Text(seconds),
            Text(arrow),
            Text(figures.spark(one.spark, SPARK), style="cyan"),
            style="reverse" if index == chosen else "",
        )
    return table


def _queues(rows: Sequence[QueueRow], state: TopState | None, height: int) -> Table:
    table = _table("queue", "state", ">members", ">lag", ">behind", "", ">in flight", "stalled")
    chosen, which = _window(rows, state, height)
    for index in which:
        one = rows[index]
        records, seconds, arrow = lag_cells(one.lag)
        table.add_row(
            Text(shown(one.name, NAME)),
            Text(shown(one.state, 20)),
            Text(figures.whole(one.members)),
            Text(records),
            Text(seconds),
            Text(arrow),
            Text(figures.whole(one.in_flight)),
            Text(shown(one.stalled, NAME), style="bold red"),
            style="reverse" if index == chosen else "",
        )
    return table


def _window(rows: Sequence[object], state: TopState | None, height: int) -> tuple[int, range]:
    if state is None:
        return -1, range(min(len(rows), max(1, height - 1)))
    return _rows(state, len(rows), height)


def lag_cells(lag: LagView | Missing | None) -> tuple[str, str, str]:
    """Records, time and trend."""
    if lag is None:
        return figures.UNKNOWN, figures.UNKNOWN, ""
    if isinstance(lag, Missing):
        return figures.UNKNOWN, shown(lag.reason, NAME), ""
    seconds = figures.duration(lag.seconds)
    if lag.at_least:
        seconds = f"> {seconds}"
    if lag.from_future:
        seconds += " (future)"
    if lag.lost:
        seconds += f" ({lag.lost:,} lost)"
    return figures.whole(lag.records), seconds, ARROWS[lag.trend]


def _transactions(page: TransactionsPage, state: TopState, height: int) -> list[RenderableType]:
    found = page.transactions
    if isinstance(found, Missing):
        return [_missing(found)]
    longest = f" · longest {figures.duration(page.longest_s)}" if page.longest_s else ""
    table = _table("id", "state", ">open", ">timeout", ">producer", "partitions")
    rows: Sequence[TransactionRow] = found.rows
    chosen, which = _rows(state, len(rows), height - 1)
    for index in which:
        one = rows[index]
        table.add_row(
            Text(shown(one.name, NAME)),
            Text(one.state),
            Text(figures.duration(one.open_s)),
            Text(figures.duration(one.timeout_s)),
            Text(f"{one.producer_id}/{one.producer_epoch}"),
            Text(shown(", ".join(one.partitions), NAME)),
            style="reverse" if index == chosen else "",
        )
    return [Text(f"open {page.open}{longest}"), table]


def _topic(page: TopicPage, height: int) -> list[RenderableType]:
    if not page.found or page.partitions is None:
        return [Text(f"no topic {shown(page.name)}; it may have been deleted", style="yellow")]
    table = _table(">p", ">leader", "isr", ">start", ">end", ">records", ">size")
    for one in page.partitions.rows[: max(1, height - 4)]:
        table.add_row(
            Text(str(one.partition)),
            Text(figures.UNKNOWN if one.leader is None else str(one.leader)),
            Text(",".join(map(str, one.isr))),
            Text(figures.whole(one.start)),
            Text(figures.whole(one.end)),
            Text(figures.whole(one.records)),
            Text(figures.size(one.size_bytes)),
        )
    return [Text(shown(page.name), style="bold"), table, Text(page.skew, style="yellow")]


def _group(page: GroupPage, height: int) -> list[RenderableType]:
    if not page.found:
        return [Text(f"no group {shown(page.name)}; it may have been deleted", style="yellow")]
    title = Text(shown(page.name), style="bold", no_wrap=True, overflow="ellipsis")
    if page.row is not None:
        records, seconds, arrow = lag_cells(page.row.lag)
        title.append(f"   {page.row.kind} · {page.row.state} · lag {records} · {seconds} {arrow}")
    if isinstance(page.partitions, Missing):
        return [title, _missing(page.partitions)]
    table = _table("topic", ">p", "member", ">committed", ">end", ">lag", ">behind")
    for one in page.partitions.rows[: max(1, height - 3)]:
        records, seconds, _ = lag_cells(one.lag)
        table.add_row(
            Text(shown(one.topic, NAME)),
            Text(str(one.partition)),
            Text(shown(one.member, NAME) or "— nobody —"),
            Text(figures.whole(one.committed)),
            Text(figures.whole(one.end)),
            Text(records),
            Text(seconds),
        )
    return [title, table]


def _strip(columns: Sequence[Column]) -> str:
    count = min(STRIP, len(columns))
    edges = [len(columns) * number // count for number in range(count + 1)] if count else []
    return "".join(
        min(column.state for column in columns[first:last]).glyph for first, last in pairwise(edges)
    )


def _queue(page: QueuePage, height: int) -> list[RenderableType]:
    if not page.found:
        return [Text(f"no queue {shown(page.name)}; it may have been deleted", style="yellow")]
    title = Text(shown(page.name), style="bold", no_wrap=True, overflow="ellipsis")
    if page.row is not None:
        records, seconds, arrow = lag_cells(page.row.lag)
        title.append(f"   share · {page.row.state} · lag {records} · {seconds} {arrow}")
    if isinstance(page.partitions, Missing):
        return [title, _missing(page.partitions)]
    lines: list[RenderableType] = [title]
    if page.windows_missing:
        lines.append(Text(f"windows: {page.windows_missing}", style="yellow"))
    table = _table("partition", ">start", ">lag", ">in flight", "window")
    why: list[str] = []
    for one in page.partitions[: max(1, height - 6)]:
        records, _, _ = lag_cells(one.lag)
        strip = ""
        if one.window is not None:
            strip = _strip(one.window.columns)
            why += one.window.why
        table.add_row(
            Text(shown(one.name, NAME)),
            Text(figures.whole(one.start)),
            Text(records),
            Text(figures.whole(one.in_flight)),
            Text(strip),
        )
    lines.append(table)
    lines += [Text(one) for one in why[:3]]
    return lines


def _pipelines(rows: Sequence[PipelineRow], state: TopState, height: int) -> Table:
    table = _table(
        "pipeline", "state", "on", ">flows", ">rows/s", ">lag", ">restarts", "last error"
    )
    chosen, which = _window(rows, state, height)
    for index in which:
        one = rows[index]
        table.add_row(
            Text(shown(one.name, NAME)),
            Text(one.state),
            Text(shown(one.host, NAME)),
            Text(figures.whole(one.flows)),
            Text(figures.count(one.rows_per_s)),
            Text(figures.whole(one.lag)),
            Text(figures.whole(one.restarts)),
            Text(shown(one.error)),
            style="reverse" if index == chosen else "",
        )
    return table


def _pipeline(page: PipelinePage, height: int) -> list[RenderableType]:
    if page.row is None:
        return [Text(shown(page.problem, 200), style="yellow")]
    title = Text(shown(page.name), style="bold", no_wrap=True, overflow="ellipsis")
    title.append(f"   {page.row.state} on {shown(page.row.host)}")
    table = _table(
        *("flow", "state", ">batch", ">done/s", "10 min", ">lag", ">batch ms", ">restarts"),
        "last error",
    )
    for one in page.flows[: max(1, height - 3)]:
        table.add_row(
            Text(shown(one.name, NAME)),
            Text(one.state),
            Text(figures.whole(one.batch)),
            Text(figures.count(one.processed_per_s)),
            Text(figures.spark(one.spark, SPARK), style="cyan"),
            Text(figures.whole(one.lag)),
            Text(figures.whole(one.batch_ms)),
            Text(figures.whole(one.restarts)),
            Text(shown(one.error)),
        )
    return [title, table]
