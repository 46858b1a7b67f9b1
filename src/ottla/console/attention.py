"""What needs attention: rules over the data and its history. Pure; a rule is a function.

A rule looks at everything of its kind and names what is wrong, in one sentence, with the page that
shows more. A rule whose data is missing is listed as not checked, with the reason: no rule takes a
missing figure for a good one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ottla.client.admin.types import NodeState
from ottla.client.cluster.view import NO_LEADER
from ottla.console import figures, rules_beside, window
from ottla.console.findings import DEFAULTS, NAMED, Finding, finding, held_for
from ottla.console.history import COARSE_MS
from ottla.console.missing import Missing
from ottla.console.text import name as shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.client.admin.types import ShareWindow
    from ottla.console.findings import Found, Thresholds
    from ottla.console.look import Look

MOST_FINDINGS: Final = 200
"""Shown at most; the others are counted. Nobody reads more, and each costs a line of the page."""


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A rule whose data is missing."""

    rule: str
    word: str
    reason: str


@dataclass(frozen=True, slots=True)
class Attention:
    """All findings, the most pressing first; what was checked, and what could not be."""

    findings: tuple[Finding, ...] = ()
    more: int = 0
    """Findings beyond those listed."""
    checked: tuple[str, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()


def attention(look: Look, thresholds: Thresholds = DEFAULTS) -> Attention:
    """Apply all rules."""
    findings: list[Finding] = []
    checked: list[str] = []
    not_checked: list[NotChecked] = []
    for rule, word, checks, apply in RULES:
        found = apply(look, thresholds)
        if isinstance(found, Missing):
            not_checked.append(NotChecked(rule, word, found.reason))
            continue
        checked.append(checks)
        findings += (replace(one, rule=rule) for one in found)
    return Attention(
        tuple(findings[:MOST_FINDINGS]),
        max(0, len(findings) - MOST_FINDINGS),
        tuple(checked),
        tuple(not_checked),
    )


# -- rules ----------------------------------------------------------------------------------------


def down(look: Look, _: Thresholds) -> Found:
    """A1: no broker answers."""
    since = look.data.away_since_ms
    if since is None:
        return []
    lasts = figures.duration((look.now.ms - since) / 1000)
    return [
        finding("DOWN", f"no broker has answered for {lasts}: {shown(look.data.away_reason, 200)}")
    ]


def offline(look: Look, _: Thresholds) -> Found:
    """A2: partitions without a leader; log directories that failed."""
    cluster = look.data.cluster.value
    if isinstance(cluster, Missing):
        return cluster
    found = []
    for name, topic in cluster.topics.items():
        lost = [one.index for one in topic.partitions if one.leader == NO_LEADER]
        if lost:
            which = ", ".join(map(str, lost[:NAMED])) + ("…" if len(lost) > NAMED else "")
            text = f"topic {shown(name)}: {len(lost)} partition(s) without a leader ({which})"
            found.append(finding("OFFLINE", text, "topics", name))
    directories = look.data.log_dirs.value
    if not isinstance(directories, Missing):
        found += [
            finding(
                "OFFLINE",
                f"log directory {shown(one.path)} of node {one.broker}: {shown(one.error, 120)}",
                "nodes",
            )
            for one in directories
            if one.error is not None
        ]
    return found


def disk(look: Look, thresholds: Thresholds) -> Found:
    """A3: little free disk, or full within a day."""
    directories = look.data.log_dirs.value
    if isinstance(directories, Missing):
        return directories
    found = []
    for one in directories:
        if one.free_bytes is None or not one.total_bytes:
            continue
        free, total = one.free_bytes, one.total_bytes
        place = f"node {one.broker}, {shown(one.path)}"
        if free < thresholds.disk_free_share * total or free < thresholds.disk_free_bytes:
            text = f"{place}: {figures.size(free)} free of {figures.size(total)}"
            found.append(finding("DISK", text, "nodes"))
            continue
        grows = look.rate("node", str(one.broker), "disk_bytes_per_s")
        if grows and free / grows < 86_400:
            text = f"{place}: full in {figures.duration(free / grows)} at the present rate"
            found.append(finding("DISK", text, "nodes"))
    return found


def lost(look: Look, _: Thresholds) -> Found:
    """A5, second half: a committed offset below the log's start."""
    groups = look.data.groups.value
    if isinstance(groups, Missing):
        return groups
    found = []
    for group, stamped in look.data.committed.items():
        behind = look.group_behind(group)
        if isinstance(stamped.value, Missing) or behind is None or isinstance(behind, Missing):
            continue
        if not behind.lost:
            continue
        total = {}
        for key, offset in stamped.value.items():
            one = look.behind(key, offset)
            if one is not None and one.lost:
                total[str(key)] = one.lost
        if total:
            which = ", ".join(list(total)[:NAMED]) + ("…" if len(total) > NAMED else "")
            text = (
                f"group {shown(group)}: {sum(total.values()):,} records were deleted before it "
                f"took them ({which})"
            )
            found.append(finding("LOST", text, "groups", group))
    return found


def stalled(look: Look, _: Thresholds) -> Found:
    """A7: a share window that cannot move."""
    return [
        finding(
            "STALLED",
            f"queue {shown(group)}, {one.topic}-{one.partition}: {_stall(one)}",
            *("queues", group, one.topic, str(one.partition)),
        )
        for group, one in _windows(look)
        if window.is_stalled(one)
    ]


def _stall(one: ShareWindow) -> str:
    since = figures.duration(one.stalled_ms / 1000)
    holders = [who for who, count in window.held_by(one).items() if count]
    held = f", held by {', '.join(shown(who) for who in holders[:NAMED])}" if holders else ""
    what = "window full" if window.is_full(one) else "start has not moved"
    return f"{what} for {since}{held}"


def last_try(look: Look, thresholds: Thresholds) -> Found:
    """A8: records at their last delivery; a member that holds nearly all locks."""
    found = []
    for group, one in _windows(look):
        tries = sum(
            run.records
            for run in one.runs
            if run.state == window.ACQUIRED and 0 < one.limit <= run.deliveries
        )
        page = ("queues", group, one.topic, str(one.partition))
        place = f"queue {shown(group)}, {one.topic}-{one.partition}"
        if tries:
            text = f"{place}: {tries:,} record(s) at delivery {one.limit} of {one.limit}"
            found.append(finding("LAST TRY", text, *page))
        held = window.held_by(one)
        total, most = sum(held.values()), max(held.values(), default=0)
        if len(held) > 1 and total > 1 and most > thresholds.hog_share * total:
            who = max(held, key=lambda member: held[member])
            text = f"{place}: {shown(who)} holds {most:,} of {total:,} locks"
            found.append(finding("LAST TRY", text, *page))
    return found


def _windows(look: Look) -> Iterator[tuple[str, ShareWindow]]:
    for group, stamped in look.data.windows.items():
        if not isinstance(stamped.value, Missing):
            for one in stamped.value:
                yield group, one


def lagging(look: Look, thresholds: Thresholds) -> Found:
    """A4: more than a minute behind and growing for ten."""
    groups = look.data.groups.value
    if isinstance(groups, Missing):
        return groups
    found = []
    for group in groups:
        is_queue = group.type == "share"
        now = look.queue_behind(group.id) if is_queue else look.group_behind(group.id)
        if now is None or isinstance(now, Missing) or (now.seconds or 0) <= thresholds.lag_s:
            continue
        kind = "queue" if is_queue else "group"
        if look.course((kind, group.id, "lag")).trend != "growing":
            continue
        if not held_for(look, (kind, group.id, "lag"), lambda lag: lag > 0, thresholds.lag_for_s):
            continue
        more = "more than " if now.at_least else ""
        text = (
            f"{kind} {shown(group.id)}: {more}{figures.duration(now.seconds)} behind, "
            f"{now.records:,} records, growing"
        )
        found.append(finding("LAG", text, f"{kind}s", group.id))
    return found


def idle(look: Look, thresholds: Thresholds) -> Found:
    """A5, first half: lag, and no member for five minutes."""
    groups = look.data.groups.value
    if isinstance(groups, Missing):
        return groups
    found = []
    for group in groups:
        kind = "queue" if group.type == "share" else "group"
        if group.state != "Empty" or not held_for(
            look, (kind, group.id, "has_members"), lambda one: one == 0, thresholds.idle_s
        ):
            continue
        is_queue = kind == "queue"
        now = look.queue_behind(group.id) if is_queue else look.group_behind(group.id)
        if now is None or isinstance(now, Missing) or not now.records:
            continue
        text = f"{kind} {shown(group.id)}: {now.records:,} records behind and no member"
        found.append(finding("IDLE", text, f"{kind}s", group.id))
    return found


def rebalancing(look: Look, thresholds: Thresholds) -> Found:
    """A6: not Stable for a minute."""
    groups = look.data.groups.value
    if isinstance(groups, Missing):
        return groups
    return [
        finding(
            "REBALANCING",
            f"group {shown(group.id)}: {shown(group.state)} for more than "
            f"{figures.duration(thresholds.rebalancing_s)}",
            *("groups", group.id),
        )
        for group in groups
        if group.state not in SETTLED_STATES
        and group.type != "share"
        and held_for(
            look, ("group", group.id, "unstable"), lambda one: one > 0, thresholds.rebalancing_s
        )
    ]


SETTLED_STATES: Final = frozenset({"Stable", "Empty", "Dead", ""})
OPEN_TRANSACTIONS: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


def transactions(look: Look, thresholds: Thresholds) -> Found:
    """A10: a transaction open for more than a minute."""
    listed = look.data.transactions.value
    if isinstance(listed, Missing):
        return listed
    found = []
    for one in listed:
        if one.state not in OPEN_TRANSACTIONS or one.start_time_ms is None:
            continue
        lasts = (look.now.wall_ms - one.start_time_ms) / 1000
        if lasts > thresholds.transaction_s:
            where = ", ".join(map(str, one.partitions[:NAMED]))
            text = (
                f"transaction {shown(one.transactional_id)}: open for {figures.duration(lasts)}"
                + (f", holds back {where}" if where else "")
            )
            found.append(finding("TXN", text, "transactions", one.transactional_id))
    return found


def nodes(look: Look, thresholds: Thresholds) -> Found:
    """A13: a node drains or is fenced for more than five minutes."""
    listed = look.data.nodes.value
    if isinstance(listed, Missing):
        return listed
    return [
        finding(
            "NODE",
            f"node {one.broker.id}: {one.state.value} for more than "
            f"{figures.duration(thresholds.node_s)}",
            "nodes",
        )
        for one in listed
        if one.state is not NodeState.ACTIVE
        and held_for(
            look, ("node", str(one.broker.id), "away"), lambda state: state > 0, thresholds.node_s
        )
    ]


HOUR_SLOTS: Final = 3_600_000 // COARSE_MS


def letters(look: Look, thresholds: Thresholds) -> Found:
    """A9: many new dead letters, or a topic for them that does not exist."""
    topics = look.data.letters.value
    if isinstance(topics, Missing):
        return topics
    found = []
    for group, topic in topics.items():
        page = ("queues", group, "letters")
        if look.data.topics and topic not in look.data.topics:
            text = f"queue {shown(group)}: its dead letters go to {shown(topic)}, which is missing"
            found.append(finding("LETTERS", text, *page))
            continue
        new, usual = hourly(look, topic)
        if (
            new is None
            or new < 1
            or (usual is not None and new <= thresholds.letters_times * usual)
        ):
            continue
        before = "not known yet" if usual is None else f"{usual:,.0f}"
        text = (
            f"queue {shown(group)}: {new:,.0f} new dead letters in {shown(topic)} in the last hour "
            f"(usual: {before})"
        )
        found.append(finding("LETTERS", text, *page))
    return found


def hourly(look: Look, topic: str) -> tuple[float | None, float | None]:
    """Records of the last hour, and of an hour on the average of the day before it."""
    slots = look.history.coarse(("topic", topic, "records_per_s"), look.now.ms)
    if isinstance(slots, Missing):
        return None, None
    rates = slots[0]
    now = [one for one in rates[-HOUR_SLOTS:] if one is not None]
    before = [one for one in rates[:-HOUR_SLOTS] if one is not None]
    seconds = COARSE_MS / 1000
    new = sum(now) * seconds if now else None
    return new, sum(before) / len(before) * 3600 if before else None


RULES: Final[tuple[tuple[str, str, str, Callable[[Look, Thresholds], Found]], ...]] = (
    ("A1", "DOWN", "brokers answer", down),
    ("A2", "OFFLINE", "every partition has a leader, every log directory is online", offline),
    ("A3", "DISK", "free disk", disk),
    ("A5", "LOST", "no group lost records", lost),
    ("A7", "STALLED", "queues that are looked at move", stalled),
    ("A8", "LAST TRY", "no record of a watched queue is at its last delivery", last_try),
    ("A4", "LAG", "no lag grows", lagging),
    ("A5", "IDLE", "groups with lag have members", idle),
    ("A6", "REBALANCING", "groups are stable", rebalancing),
    ("A10", "TXN", "no transaction is open for long", transactions),
    ("A9", "LETTERS", "no flood of dead letters", letters),
    ("A11", "TIER", "copies to the tier end, its catalogue can be read", rules_beside.tier),
    ("A13", "NODE", "nodes are active", nodes),
    ("A14", "TABLE", "tables keep up with their topics", rules_beside.tables),
    ("A12", "PIPELINE", "flows of pipelines run", rules_beside.pipelines),
    ("A15", "CERT", "certificates of brokers last", rules_beside.certificates),
)
