"""The table worker as a child of the broker (`ottla.table.worker=child`).

Of several nodes the leader of the pointers' topic runs it, and before there is one the node with
the lowest id; so a cluster has one worker, and it moves with that leadership. Nothing of the worker
is imported here.

- The child (`python -P -m ottla.tables`) is told where broker, warehouse and catalogue are, and how
  it logs in as `__table`, through its standard input. The input's end tells it that the broker is
  gone.
- A child that ends is started again after 1 s, and after twice as long each time, up to 60 s; one
  that has run for a minute begins again with 1 s.
- Without the packages of the extra the broker starts all the same, and says what is missing.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from ottla.broker.access.own_address import guarded_address, open_address
from ottla.broker.running.watched import Watch
from ottla.metadata.names import POINTER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ottla.broker.running.node import Node
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import MetadataImage

MODULE: Final = "ottla.tables"
PACKAGES: Final = ("pyiceberg", "pyarrow", "numpy", "numba", "sqlalchemy", "fastavro")
STORE: Final = "rsm.config."
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
STEADY_SECONDS: Final = 60.0
"""A child that has run for so long starts with the first pause again."""

logger = logging.getLogger(__name__)


def missing_package() -> str | None:
    """A package of the tables extra that is not installed; imports none of them."""
    return next((name for name in PACKAGES if find_spec(name) is None), None)


def runs_here(image: MetadataImage, node_id: int) -> bool:
    """Whether this node is the one that runs the worker."""
    topic = image.topics_by_name.get(POINTER_TOPIC)
    if topic is not None:
        return topic.partitions[0].leader == node_id
    return node_id == min(
        (number for number, one in image.brokers.items() if not one.fenced), default=node_id
    )


def settings_of(config: BrokerConfig, root: Path) -> dict[str, object]:
    """What the worker is told of its tables. `root` is the directory that all nodes share."""
    root = root.absolute()
    options = {key: value for key, value in config.static.items() if key.startswith(STORE)}
    url = options.pop(STORE + "url", None)
    shared = (root / "tables").as_uri() if url is None else f"{url.rstrip('/')}/tables"
    registry = config.parsed("ottla.table.registry.url")
    return {
        "registry": None if registry is None else str(registry),
        "tier": url if config.get_bool("remote.log.storage.system.enable") else None,
        "warehouse": str(config.parsed("ottla.table.warehouse") or shared),
        "catalog": str(config.parsed("ottla.table.catalog") or f"sqlite:///{root}/tables.db"),
        "namespace": config.get_str("ottla.table.namespace"),
        "nice": config.get_int("ottla.table.nice"),
        "options": options,
    }


@dataclass(slots=True)
class Pauses:
    """When a child that ended may be started again. Pure."""

    failures: int = 0
    not_before: float = 0.0

    def ended(self, lasted: float, now: float) -> None:
        """A child has ended."""
        if lasted >= STEADY_SECONDS:
            self.failures = 0
        self.not_before = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2**self.failures)
        self.failures = min(self.failures + 1, 16)

    def wait(self, now: float) -> float:
        """Seconds until the next may be started."""
        return max(0.0, self.not_before - now)


class TableWorker:
    """`start` begins to run it where it belongs, `close` ends it."""

    def __init__(
        self,
        told: Mapping[str, object],
        node_id: int,
        command: Sequence[str] = (sys.executable, "-P", "-m", MODULE),
    ) -> None:
        self._told = told
        self._node_id = node_id
        self._command = command
        self._watch = Watch()
        self._pauses = Pauses()
        self._is_wanted = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="ottla-table-worker", daemon=True)

    @classmethod
    async def of(cls, node: Node, root: Path) -> TableWorker | None:
        """As the node is configured; None, and a line in the log, if a package is missing."""
        package = await node.workers.run(missing_package)
        if package is not None:
            logger.error(
                "the table worker needs %s: pip install 'ottla[tables]'; tables stay as they are",
                package,
            )
            return None
        told = settings_of(node.config, root)
        door = node.services.door
        security: dict[str, str] = {}
        bootstrap = open_address(node.addresses)
        if door is not None:
            security = await node.workers.run(door.worker_properties)
            bootstrap = guarded_address(node.cluster, door)
        return cls({**told, "bootstrap": bootstrap, "security": security}, node.node_id)

    @property
    def pid(self) -> int | None:
        """The process of the worker, if it runs."""
        return self._watch.pid

    def start(self, image: MetadataImage) -> None:
        self._is_wanted = runs_here(image, self._node_id)
        self._thread.start()

    def image_changed(self, _: MetadataImage, after: MetadataImage) -> None:
        """Start or stop with the leadership of the pointers' topic."""
        wanted = runs_here(after, self._node_id)
        if wanted != self._is_wanted:
            self._is_wanted = wanted
            self._watch.wake()

    def close(self) -> None:
        """Returns when the worker has ended."""
        self._closing = True
        self._watch.wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._watch.close()

    def _goes_on(self) -> bool:
        return self._is_wanted and not self._closing

    def _run(self) -> None:
        while not self._closing:
            if not self._is_wanted:
                self._watch.wait()
                continue
            pause = self._pauses.wait(time.monotonic())
            if pause:
                self._watch.wait(seconds=pause)
                continue
            began = time.monotonic()
            try:
                status = self._watch.run(self._command, self._told, self._goes_on)
            except OSError as error:
                logger.error("the table worker cannot be started: %s", error)  # noqa: TRY400
                status = None
            if not self._goes_on():
                continue
            now = time.monotonic()
            self._pauses.ended(now - began, now)
            if status is not None:
                logger.error(
                    "the table worker ended with status %d; see the lines above; next start in "
                    "%.0f s", status, self._pauses.wait(now),
                )  # fmt: skip
