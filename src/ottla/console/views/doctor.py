"""What this console may do and what it costs; what the cluster can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.console import capabilities as can
from ottla.console.missing import Known, Missing
from ottla.console.views.frame import Frame, frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.console.attention import Attention, NotChecked
    from ottla.console.look import Look

WORDS: Final = {
    can.SHARE_GROUPS: "queues (share groups)",
    can.SHARE_WINDOWS: "windows of queues",
    can.TRANSACTIONS: "list of transactions",
    can.LOG_DIRS: "sizes of logs",
    can.TIER: "borders of the tier",
    can.TELEMETRY: "metrics of clients",
    can.NODES: "several nodes",
}


@dataclass(frozen=True, slots=True)
class CapabilityRow:
    """Something that a cluster can have; `why_not` is empty if it has."""

    name: str
    has: bool
    why_not: str


@dataclass(frozen=True, slots=True)
class Own:
    """This process."""

    version: str
    python: str
    packages: tuple[tuple[str, str], ...]
    may_write: bool
    why: str
    """What it may do and because of which setting."""
    resident_bytes: int | None
    sampler_s: float
    """How long the requests of the last round of samples took."""
    partitions_a_tick: int
    groups_a_tick: int
    series: int
    series_not_kept: int


@dataclass(frozen=True, slots=True)
class ApiRow:
    """An API of the protocol that the brokers serve."""

    key: int
    name: str
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class DoctorPage:
    """The console, and the cluster as it sees it."""

    frame: Frame
    own: Own
    capabilities: tuple[CapabilityRow, ...]
    checked: tuple[str, ...]
    not_checked: tuple[NotChecked, ...]
    apis: Known[tuple[ApiRow, ...]]


def _title(name: str) -> str:
    """`list_offsets` as Kafka writes it."""
    return "".join(part.capitalize() for part in name.split("_")) if "_" in name else name.title()


def page(
    look: Look,
    attention: Attention,
    own: Own,
    names: Mapping[int, str],
) -> DoctorPage:
    """The page; `names` are those of APIs."""
    has = look.data.capabilities
    cluster = look.data.cluster.value
    return DoctorPage(
        frame(look, attention),
        own,
        tuple(
            CapabilityRow(words, word in has, has.explain(word) or "")
            for word, words in WORDS.items()
        ),
        attention.checked,
        attention.not_checked,
        cluster
        if isinstance(cluster, Missing)
        else tuple(
            ApiRow(key, _title(names.get(key, f"API {key}")), low, high)
            for key, (low, high) in sorted(cluster.versions.items())
        ),
    )
