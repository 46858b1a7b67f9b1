"""What `ottla top` shows: a small state machine of keys. Pure.

`1-6` choose a view, `j k` or the arrows a row, `/` types a filter until Enter or Escape, `s` the
next sorting, `p` pauses, `c` shows the command for the row, Enter its details, Escape leaves them,
`?` shows the keys, `q` ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.cli.keys import BACKSPACE, DOWN, ENTER, ESCAPE, UP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Change: TypeAlias = "Callable[[TopState, Sequence[str]], TopState]"

VIEWS: Final = ("overview", "topics", "groups", "queues", "transactions", "pipelines")
SORTS: Final = {
    "overview": ("",),
    "topics": ("name", "-records_per_s", "-size_bytes", "-records"),
    "groups": ("-lag_s", "-lag_records", "name", "state"),
    "queues": ("-lag_s", "-lag_records", "-in_flight", "name"),
    "transactions": ("-open_s", "name"),
    "pipelines": ("", "name", "-lag", "-rows_per_s", "-restarts"),
}
LONGEST_FILTER: Final = 249
"""Characters: as long as the longest name of a topic."""


@dataclass(frozen=True, slots=True)
class TopState:
    """Everything that keys have set."""

    view: str = "overview"
    row: int = 0
    sort: int = 0
    contains: str = ""
    is_typing: bool = False
    is_paused: bool = False
    shows_help: bool = False
    shows_command: bool = False
    detail: str = ""
    """The name of the thing whose details are shown."""
    is_done: bool = False

    @property
    def order(self) -> tuple[str, bool]:
        """The field to sort by, and whether the largest comes first."""
        sorts = SORTS[self.view]
        chosen = sorts[self.sort % len(sorts)]
        return chosen.removeprefix("-"), chosen.startswith("-")


def after(state: TopState, key: str, names: Sequence[str] = ()) -> TopState:
    """The state after a key; `names` are those of the rows that are listed."""
    if state.is_typing:
        return _typed(state, key)
    if state.shows_help:
        return replace(state, shows_help=False, is_done=key == "q")
    state = replace(state, shows_command=False, row=max(0, min(state.row, len(names) - 1)))
    change = _KEYS.get(key)
    return state if change is None else change(state, names)


def _view(number: int) -> Change:
    view = VIEWS[number]
    return lambda state, _: replace(state, view=view, row=0, sort=0, detail="")


def _step(by: int) -> Change:
    return lambda state, names: replace(state, row=max(0, min(state.row + by, len(names) - 1)))


def _escape(state: TopState, _: Sequence[str]) -> TopState:
    return replace(state, detail="", contains=state.contains if state.detail else "")


_KEYS: Final[dict[str, Change]] = {
    **{str(number + 1): _view(number) for number in range(len(VIEWS))},
    "j": _step(1),
    DOWN: _step(1),
    "k": _step(-1),
    UP: _step(-1),
    "/": lambda state, _: replace(state, is_typing=True, contains="", detail=""),
    "s": lambda state, _: replace(state, sort=state.sort + 1),
    "p": lambda state, _: replace(state, is_paused=not state.is_paused),
    "c": lambda state, _: replace(state, shows_command=True),
    "?": lambda state, _: replace(state, shows_help=True),
    "q": lambda state, _: replace(state, is_done=True),
    ENTER: lambda state, names: replace(state, detail=names[state.row] if names else ""),
    ESCAPE: _escape,
}


def _typed(state: TopState, key: str) -> TopState:
    if key == ENTER:
        return replace(state, is_typing=False, row=0)
    if key == ESCAPE:
        return replace(state, is_typing=False, contains="")
    if key == BACKSPACE:
        return replace(state, contains=state.contains[:-1])
    if key in (UP, DOWN) or len(state.contains) >= LONGEST_FILTER:
        return state
    return replace(state, contains=state.contains + key, row=0)
