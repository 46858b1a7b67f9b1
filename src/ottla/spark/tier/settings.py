"""Options for tiered segments: `tier`, `tierUrl` and others.

`tier.*` are the settings of the object store; brokers have the same ones as `rsm.config.*`. Missing
settings come from the environment of each worker.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import quote

from ottla.objects.location import PREFIX, URL_KEY, BadLocation, open_store, parse_location
from ottla.spark.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.objects.location import StoreLocation
    from ottla.objects.store import ObjectStore

TierMode: TypeAlias = Literal["auto", "only", "directory"]

OPTION_PREFIX: Final = "tier."
MODES: Final = ("auto", "off", "only")
MIN_BYTES: Final = 64 * 1024 * 1024  # the first byte from a store takes longer than from a broker


@dataclass(frozen=True, slots=True)
class TierSettings:
    """Where segments are and when to read them; hashable, and equal in every process."""

    mode: TierMode
    url: str
    store: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    min_bytes: int = MIN_BYTES
    topic_ids: frozenset[str] = frozenset()

    def location(self) -> StoreLocation:
        """The parsed location."""
        return parse_location({URL_KEY: self.url, **dict(self.store)})


@functools.lru_cache(maxsize=16)
def store_of(settings: TierSettings) -> ObjectStore:
    """The store, opened once in a process."""
    return open_store(settings.location())


def tier_settings(options: Mapping[str, str]) -> TierSettings | None:
    """The settings from options with lower-case names; None: read from brokers only."""
    mode = options.get("tier", "auto").strip().lower()
    url = options.get("tierurl")
    least = options.get("tierminbytes", str(MIN_BYTES)).strip()
    if mode not in MODES:
        raise BadOption(f"tier is one of {', '.join(MODES)}, not {mode!r}")
    if mode == "only" and url is None:
        raise BadOption("tier=only needs the option tierUrl: give s3://bucket/prefix or the like")
    if not least.isdecimal():
        raise BadOption(f"tierMinBytes is a whole number of 0 or more, not {least!r}")
    if mode == "off" or url is None:
        return None
    store = {
        PREFIX + name.removeprefix(OPTION_PREFIX): str(value)
        for name, value in options.items()
        if name.startswith(OPTION_PREFIX)
    }
    found = TierSettings(
        "only" if mode == "only" else "auto",
        url,
        tuple(sorted(store.items())),
        int(least),
        frozenset(one.strip() for one in options.get("tiertopicid", "").split(",") if one.strip()),
    )
    try:
        found.location()
    except BadLocation:
        # Without the URL: credentials may be in it.
        raise BadOption(
            "tierUrl: expected s3://bucket/prefix, gs://..., az://... or file:///directory, "
            "without credentials or further parts"
        ) from None
    return found


def directory_settings(path: str) -> TierSettings:
    """The settings for the log directory of a broker."""
    if not path.startswith("/"):
        raise BadOption("store=segments needs the option path: give an absolute directory")
    return TierSettings("directory", f"file://{quote(path.rstrip('/'))}")
