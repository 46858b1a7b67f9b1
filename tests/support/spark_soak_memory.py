"""What the processes of the soak hold, looked at again and again."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.spark_soak import SoakPipeline

KINDS: Final = ("source", "worker", "jvm", "driver")
KIB: Final = 1024


def memory_of(pid: int) -> tuple[int, int] | None:
    """Resident bytes now, and at their most."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Vm"))
    if "VmRSS" not in found:  # it has ended, and nobody has asked how
        return None
    return tuple(int(found[name].split()[0]) * KIB for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]  # two


class Memory:
    """`look` is called every few seconds."""

    def __init__(self, pipeline: SoakPipeline, broker: Callable[[], int]) -> None:
        self._pipeline = pipeline
        self._broker = broker
        self.samples: Mapping[str, list[int]] = defaultdict(list)
        self.peaks: dict[str, int] = {}

    def look(self) -> None:
        pids = {kind: self._pipeline.pids(kind) for kind in KINDS}
        pids["broker"] = [self._broker()]
        for kind, some in pids.items():
            for pid in some:
                found = memory_of(pid)
                if found is not None:
                    self.samples[kind].append(found[0])
                    self.peaks[kind] = max(self.peaks.get(kind, 0), found[1])

    def thirds(self, kind: str) -> tuple[float, float]:
        """The median in the first third of the run, and in the last."""
        some = self.samples[kind]
        third = max(1, len(some) // 3)
        return median(some[:third]), median(some[-third:])
