"""Numbers, sizes and times as people read them, one way for all faces."""

from __future__ import annotations

from typing import Final

from ottla.console.missing import Missing

UNKNOWN: Final = "-"
SPARKS: Final = "▁▂▃▄▅▆▇█"
GAP: Final = " "


def whole(value: int | Missing | None) -> str:
    """84,210"""
    return UNKNOWN if value is None or isinstance(value, Missing) else f"{value:,}"


def count(value: float | Missing | None) -> str:
    """310, 12.4k, 84.2M"""
    if value is None or isinstance(value, Missing):
        return UNKNOWN
    if abs(value) < 10 and value != int(value):
        return f"{value:.1f}"
    size = abs(value)
    for limit, unit, by in ((999.5, "", 1), (999_950, "k", 1e3), (999_950_000, "M", 1e6)):
        if size < limit:
            return _scaled(value / by, unit)
    return _scaled(value / 1e9, "G")


def _scaled(value: float, unit: str) -> str:
    return f"{value:.0f}" if not unit else f"{value:.1f}{unit}"


def size(value: float | Missing | None) -> str:
    """312 B, 3.1 GiB"""
    if value is None or isinstance(value, Missing):
        return UNKNOWN
    number = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def duration(seconds: float | Missing | None) -> str:
    """0.2 s, 21 s, 12 min 04 s, 3 h 20 min, 6 d 22 h"""
    if seconds is None or isinstance(seconds, Missing):
        return UNKNOWN
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s" if seconds >= 0.05 else "0 s"
    rest = round(seconds)
    if rest < 60:
        return f"{rest} s"
    if rest < 3600:
        return f"{rest // 60} min {rest % 60:02} s"
    if rest < 86_400:
        return f"{rest // 3600} h {rest % 3600 // 60:02} min"
    return f"{rest // 86_400} d {rest % 86_400 // 3600:02} h"


def spark(values: tuple[float | None, ...], width: int) -> str:
    """The last values as a line of blocks; a gap is a blank."""
    shown = values[-width:]
    most = max((one for one in shown if one is not None), default=0.0)
    return "".join(
        GAP
        if one is None
        else SPARKS[min(len(SPARKS) - 1, int(one / most * len(SPARKS)))]
        if most > 0
        else SPARKS[0]
        for one in shown
    )
