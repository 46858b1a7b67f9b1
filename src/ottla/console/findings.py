"""What rules are made of: thresholds, findings, and how long something has been so. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.console.history import FINE_MS
from ottla.console.missing import Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.console.history import Name
    from ottla.console.look import Look

NAMED: Final = 3
"""Partitions or members that a sentence names."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """`[attention]` of the settings."""

    disk_free_share: float = 0.10
    disk_free_bytes: int = 1 << 30
    lag_s: float = 60.0
    lag_for_s: float = 600.0
    idle_s: float = 300.0
    rebalancing_s: float = 60.0
    transaction_s: float = 60.0
    hog_share: float = 0.90
    node_s: float = 300.0
    letters_times: float = 3.0
    table_s: float = 600.0
    pipeline_restarts: float = 3.0
    pipeline_restarts_s: float = 600.0
    pipeline_silent_s: float = 90.0
    tier_s: float = 600.0
    certificate_s: float = 14 * 86_400.0


DEFAULTS: Final = Thresholds()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `page` is the path below the cluster, as names: ("queues", "x")."""

    rule: str
    word: str
    text: str
    page: tuple[str, ...]


Found: TypeAlias = "Sequence[Finding] | Missing"


def finding(word: str, text: str, *page: str) -> Finding:
    """A finding; `attention` puts its rule in."""
    return Finding("", word, text, page)


def held_for(look: Look, name: Name, wanted: Callable[[float], bool], seconds: float) -> bool:
    """Whether every sample of a series in the last seconds was so, with samples all the time."""
    slots = int(seconds * 1000) // FINE_MS + 1
    found = look.history.fine(name, look.now.ms, slots)
    if isinstance(found, Missing):
        return False
    # The present slot may not have its sample yet, and the sampler has a turn of up to a minute.
    trimmed = list(found)
    for _ in range(min(len(trimmed) - 1, 6)):
        if trimmed[-1] is None:
            trimmed.pop()
    return all(one is not None and wanted(one) for one in trimmed)
