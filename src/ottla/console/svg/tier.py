"""A log as a strip: what is remote above, what is local below. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.console.svg.markup import element, picture

if TYPE_CHECKING:
    from ottla.console.views.tier import TierRow

WIDE: Final = 160
HIGH: Final = 16


def strip(row: TierRow) -> str:
    """The remote part begins at the left, the local one ends at the right."""
    remote, local = row.remote_share * WIDE, row.local_share * WIDE
    return picture(
        WIDE,
        HIGH,
        f"{row.remote_share:.0%} of the offsets are remote, {row.local_share:.0%} local",
        element("rect", class_="tier-remote", x=0, y=1, width=remote, height=6),
        element("rect", class_="tier-local", x=WIDE - local, y=9, width=local, height=6),
        class_="tier",
    )
