"""The paths of a pipeline: checkpoints, tables, the start position that a reset saves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.spark.pipelines.model import Flow, ToTable
    from ottla.spark.pipelines.settings import Settings

DEFAULT_STATE: Final = "ottla-state"
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(frozen=True, slots=True)
class Places:
    """`state` is on this machine; `checkpoints` and `tables` may be URLs that Spark understands."""

    state: Path
    checkpoints: str
    tables: str

    @classmethod
    def of(cls, settings: Settings, name: str, state: str | None) -> Places:
        """Paths from the settings, or below the given directory."""
        root = Path(state or settings.state or Path(DEFAULT_STATE) / name).absolute()
        if state is not None:
            return cls(root, str(root / "checkpoints"), str(root / "tables"))
        return cls(
            root,
            _absolute(settings.checkpoints or str(root / "checkpoints")),
            _absolute(settings.tables or str(root / "tables")),
        )

    def checkpoint(self, flow: Flow) -> str:
        """The checkpoint of a flow; one that is not absolute is below the others."""
        return _below(self.checkpoints, flow.checkpoint or flow.name)

    def table(self, target: ToTable) -> str:
        """The directory of a table."""
        if "/" in target.name:
            return _absolute(target.name)
        return _below(self.tables, target.name)

    def start_note(self, flow: str) -> Path:
        """The file in which `reset` saves the start position of a flow."""
        return self.state / "starts" / f"{flow}.json"

    def backfill_note(self, flow: str) -> Path:
        """The file that says where the batch of a flow over its table ends."""
        return self.state / "backfills" / f"{flow}.json"

    @property
    def are_local(self) -> bool:
        """Whether checkpoints are files of this machine."""
        return local_path(self.checkpoints) is not None


def local_path(place: str) -> Path | None:
    """A place as a path of this machine, None if it is not one."""
    if place.startswith("file:"):
        return Path("/" + place.removeprefix("file:").lstrip("/"))
    return None if _URL.match(place) else Path(place)


def _absolute(place: str) -> str:
    return place if _URL.match(place) else str(Path(place).absolute())


def _below(root: str, name: str) -> str:
    if _URL.match(name) or name.startswith("/"):
        return name
    return f"{root.rstrip('/')}/{name}"
