"""Rounds of `ottla.cluster.balance` on the live node with the lowest id.

A round is due every `leader.imbalance.check.interval.seconds`, and at once when the metadata has
changed while a node drains. What a round finds is decided again on the newest image, inside the
store's transaction; if that refuses, the next round goes on.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from ottla.cluster.balance import History, Limits, decide_balance, is_balancer
from ottla.cluster.placement import draining
from ottla.metadata.changes.topics import SetLeaders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.cluster import Cluster
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.metadata.changes.apply import Change
    from ottla.metadata.changes.topics import Leadership
    from ottla.metadata.image import MetadataImage

logger = logging.getLogger(__name__)


class Balancing:
    """Call `run` every second or so."""

    def __init__(self, cluster: Cluster, workers: Workers, clock: Clock) -> None:
        config = cluster.config
        self._cluster = cluster
        self._workers = workers
        self._clock = clock
        self._interval = config.get_int("leader.imbalance.check.interval.seconds")
        self._limits = Limits(
            config.get_bool("auto.leader.rebalance.enable"),
            config.get_int("leader.imbalance.per.broker.percentage"),
        )
        self._history = History()
        self._next = clock.monotonic() + self._interval
        self._looked_at = -1
        """The version of the metadata that the last round saw."""

    async def run(self) -> None:
        image, now = self._cluster.image, self._clock.monotonic()
        self._history = self._history.looked(image, now)
        if not is_balancer(image, self._cluster.node_id) or not self._is_due(image, now):
            return
        self._next = now + self._interval
        self._looked_at = image.version
        decide = partial(decide_balance, limits=self._limits, now=now)
        # With many partitions that takes longer than a turn of the loop may.
        if not await self._workers.run(partial(decide, image, self._history)):
            return
        moves: list[Leadership] = []

        def decide_newest(newest: MetadataImage) -> Sequence[Change]:
            moves[:] = decide(newest, self._history.looked(newest, now))
            return [SetLeaders(tuple(moves))] if moves else []

        await self._cluster.change(decide_newest)
        self._history = self._history.with_moves(moves, now)
        if moves:
            logger.info("moving %d partitions to other nodes", len(moves))

    def _is_due(self, image: MetadataImage, now: float) -> bool:
        return now >= self._next or (image.version != self._looked_at and bool(draining(image)))
