"""What surrounds every page: the cluster, the age of the data, what needs attention."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from ottla.console import capabilities as can
from ottla.console.missing import Missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.clock import Now
    from ottla.console.attention import Attention
    from ottla.console.look import Look

PAGE_ROWS: Final = 50

# Pages by name, and the capability that each needs.
PAGES: Final = (
    ("overview", None),
    ("topics", None),
    ("groups", None),
    ("queues", can.SHARE_GROUPS),
    ("transactions", can.TRANSACTIONS),
    ("nodes", can.NODES),
    ("tier", can.CATALOGUE),
    ("tables", can.TABLES),
    ("pipelines", can.PIPELINES),
    ("schemas", can.REGISTRY),
    ("security", can.ACLS),
    ("doctor", None),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """Of every page."""

    cluster: str
    bootstrap: str
    cluster_id: str | None
    as_of: datetime | None
    """When the oldest of the answers on the page came."""
    age_s: float | None
    away_s: float | None
    """For how long no broker has answered; None: they do."""
    away_reason: str
    replaced_id: str | None
    """Another cluster answers under this name than before: the id of the one before."""
    pages: tuple[str, ...]
    attention: int


def frame(look: Look, attention: Attention, stamps: Sequence[int | None] = ()) -> Frame:
    """The frame of a page that was made from answers which came at these times."""
    data, now = look.data, look.now
    known = [one for one in (data.cluster.at_ms, *stamps) if one is not None]
    oldest = min(known, default=None)
    found = data.cluster.value
    has = data.capabilities
    away = data.away_since_ms
    return Frame(
        cluster=data.name,
        bootstrap=data.bootstrap,
        cluster_id=None if isinstance(found, Missing) else found.id,
        as_of=None if oldest is None else wall(now, oldest),
        age_s=None if oldest is None else (now.ms - oldest) / 1000,
        away_s=None if away is None else (now.ms - away) / 1000,
        away_reason=data.away_reason,
        replaced_id=data.replaced_id,
        pages=tuple(name for name, needs in PAGES if needs is None or needs in has),
        attention=len(attention.findings),
    )


def wall(now: Now, at_ms: int) -> datetime:
    """A moment of the monotonic clock as people write it, by what both clocks say now."""
    return time_of(now.wall_ms) - timedelta(milliseconds=now.ms - at_ms)


def time_of(wall_ms: int) -> datetime:
    """Milliseconds since the epoch as a time in UTC."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=wall_ms)
