"""Which store a query reads: brokers, brokers and a tier, or one that needs no broker at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.redaction import redact
from ottla.spark.errors import BadOption
from ottla.spark.tier.settings import TierSettings, directory_settings, tier_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

STORES: Final = ("kafka", "segments", "redis", "ss")
# Stores that are not logs of topics, and the prefixes of their paths.
_NO_LOGS: Final = {"redis": ("redis://", "rediss://"), "ss": ("/",)}
_OF_TOPICS: Final = (
    *("assign", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition", "offsetsGroup"),
    *("offsetStore", "tierUrl", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"),
    *("endingTimestamp", "pushdown", "onSettled", "maxBytesPerTrigger"),
)


class Store(NamedTuple):
    """The store to read, its path, and its segments if it has any."""

    kind: str
    path: str
    tier: TierSettings | None

    def __repr__(self) -> str:
        return f"Store(kind={self.kind!r}, path={redact(self.path)!r}, tier={self.tier!r})"

    @property
    def has_brokers(self) -> bool:
        return self.kind == "kafka" and (self.tier is None or self.tier.mode == "auto")


def store_options(options: Mapping[str, str]) -> Store:
    """The store of these options, whose names are in lower case."""
    kind = options.get("store", "kafka").strip().lower()
    path = options.get("path", "").strip()
    if kind not in STORES:
        raise BadOption(f"store is one of {', '.join(STORES)}, not {kind!r}")
    if kind in _NO_LOGS:
        _check_no_log(kind, path, options)
        return Store(kind, path, None)
    if kind == "kafka":
        tier = tier_settings(options)
    elif "tierurl" in options:
        raise BadOption("tierUrl is for topics of brokers: leave it out with store=segments")
    else:
        tier = directory_settings(path)
    if tier is not None and tier.mode != "auto":
        _check_no_brokers("store=segments" if kind == "segments" else "tier=only", options)
    if kind == "segments" and options.get("kafka.isolation.level") == "read_committed":
        raise BadOption(
            "kafka.isolation.level=read_committed needs a broker: files do not say how open "
            "transactions end; leave store=segments out"
        )
    return Store(kind, path, tier)


def _check_no_log(kind: str, path: str, options: Mapping[str, str]) -> None:
    if not path.startswith(_NO_LOGS[kind]):
        begins = " or ".join(_NO_LOGS[kind])
        raise BadOption(f"store={kind} needs the option path, which begins with {begins}")
    for name in _OF_TOPICS:
        if name.lower() in options:
            raise BadOption(f"{name} is for topics: leave it out with store={kind}")
    if kind == "redis" and "subscribe" not in options:
        raise BadOption("store=redis needs the option subscribe: give the names of streams")


def _check_no_brokers(because: str, options: Mapping[str, str]) -> None:
    if "offsetsgroup" in options or options.get("startingoffsets", "").startswith("group:"):
        raise BadOption(f"groups are kept by brokers: leave out offsetsGroup, or {because}")
    if "maxbytespertrigger" in options:
        raise BadOption(
            "maxBytesPerTrigger asks brokers how large records are: use maxOffsetsPerTrigger, or "
            f"leave out {because}"
        )
