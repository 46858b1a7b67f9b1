"""What to do about a store, a spool or a catalogue that cannot be written, in words."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
CLOSED: Final = (errno.EROFS, errno.EACCES, errno.EPERM)

WAREHOUSE: Final = "the warehouse"
SPOOL: Final = "the directory for temporary files"
CATALOGUE: Final = "the database of the catalogue"

_ROOM: Final = {
    WAREHOUSE: "free space on its disk, such as with ottla table expire and ottla table sweep",
    SPOOL: "free space on its disk, or name a directory on another one with TMPDIR",
    CATALOGUE: "free space on its disk",
}
# SQLite has words alone.
_OF_SQLITE: Final = {
    "database or disk is full": errno.ENOSPC,
    "attempt to write a readonly database": errno.EROFS,
}
_NOT_OPENED: Final = "unable to open database file"


def remedy(error: BaseException, place: str = WAREHOUSE) -> str:
    """What to do, to stand after the error's own words; empty if nobody can say.

    `place` is what was written, unless the catalogue's database is what fails.
    """
    for one in _causes(error):
        number = one.errno if isinstance(one, OSError) else None
        if number is None:
            told = str(getattr(one, "orig", None) or one)
            if _NOT_OPENED in told:
                return "; make its directory, and let this user write there"
            number = next((code for text, code in _OF_SQLITE.items() if text in told), None)
            if number is None:
                continue
            place = CATALOGUE
        if number in FULL:
            return f"; {place} is full: {_ROOM[place]}"
        if number in CLOSED:
            return (
                f"; {place} cannot be written: let this user write there, or mount it for writing"
            )
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__
