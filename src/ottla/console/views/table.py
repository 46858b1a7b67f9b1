"""Tables of pages: filter, sort and cut to a page. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ottla.console.missing import Missing
from ottla.console.views.frame import PAGE_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Query:
    """What the URL says of a table: all of its state."""

    contains: str = ""
    sort: str = ""
    descending: bool = False
    page: int = 1
    rows: int = PAGE_ROWS
    internal: bool = False


ALL: Final = Query()


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """The rows of one page, and how many there are in all."""

    rows: tuple[T, ...]
    total: int
    """That the filter lets through."""
    first: int
    """The number of the first row, from 1; 0 if there is none."""
    page: int
    pages: int
    sort: str
    descending: bool
    contains: str


def chosen(names: Iterable[str], contains: str) -> list[str]:
    """The names that contain the text, whatever the case."""
    wanted = contains.casefold()
    return [name for name in names if wanted in name.casefold()] if wanted else list(names)


def table(rows: Iterable[T], query: Query, default: str, name: Callable[[T], str]) -> Table[T]:
    """One page of the rows, sorted by a field of theirs; unknown figures come last.

    The default is a field; with a dash before it, the largest first. Equal ones are sorted by name.
    """
    found = sorted(rows, key=name)
    names = getattr(type(found[0]), "__dataclass_fields__", {}) if found else {}
    if query.sort in names:
        sort, descending = query.sort, query.descending
    else:
        sort, descending = default.removeprefix("-"), default.startswith("-")
    if sort in names:
        known = [row for row in found if _has(getattr(row, sort))]
        unknown = [row for row in found if not _has(getattr(row, sort))]
        known.sort(key=lambda row: _order(getattr(row, sort)), reverse=descending)
        found = known + unknown
    size = max(1, query.rows)
    pages = max(1, -(-len(found) // size))
    page = min(max(1, query.page), pages)
    start = (page - 1) * size
    return Table(
        rows=tuple(found[start : start + size]),
        total=len(found),
        first=start + 1 if found else 0,
        page=page,
        pages=pages,
        sort=sort,
        descending=descending,
        contains=query.contains,
    )


def _has(value: Any) -> bool:
    return value is not None and not isinstance(value, Missing)


def _order(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value
