"""The cluster as this node sees it and changes it: the image, who serves where, changes."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.metadata.errors import StoreBusy, StoreError
from ottla.metadata.producer_ids import ProducerIds
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metadata.changes.apply import Change, Decision
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import Broker, Endpoint, MetadataImage, Topic
    from ottla.metadata.metadata import Metadata

logger = logging.getLogger(__name__)


class Cluster:
    """What every node knows, and the configuration and id of this one."""

    def __init__(self, metadata: Metadata, config: BrokerConfig) -> None:
        self._metadata = metadata
        self.config = config
        self.node_id = config.node_id
        self._producer_ids = ProducerIds(metadata, self.node_id)
        self._failing = False
        runs_registry = config.parsed("ottla.registry.listener") is not None
        self.registry_topic = config.get_str("ottla.registry.topic") if runs_registry else None
        """The topic that the registry of this broker writes, if it runs one."""

    @property
    def image(self) -> MetadataImage:
        return self._metadata.image

    def is_own(self, topic: Topic) -> bool:
        """Whether the broker alone writes a topic."""
        return topic.internal or topic.name == self.registry_topic

    def endpoints(self, listener: str) -> list[tuple[Broker, Endpoint]]:
        """The brokers that are up, with the address of their listener of this name."""
        return [
            (broker, broker.listeners[listener])
            for broker in self.image.brokers.values()
            if not broker.fenced and listener in broker.listeners
        ]

    async def change(self, *steps: Change | Decision) -> MetadataImage:
        """Change the cluster. On return it is durable, and this node has adopted it.

        Raises `ChangeRefused`, or the decision's own error; an `ApiError` if the store fails.
        """
        with self._store_errors():
            return await self._metadata.change(*steps)

    async def spread(self, image: MetadataImage) -> None:
        """Wait until the other nodes that are up have adopted it; not for long."""
        await self._metadata.spread(image.version)

    async def refresh(self) -> MetadataImage:
        """The image with every change that any node has been told was made before this call."""
        with self._store_errors():
            return await self._metadata.poll()

    def try_out(self, *steps: Change | Decision) -> MetadataImage:
        """The image that a change would lead to."""
        return self._metadata.try_out(*steps)

    async def next_producer_id(self) -> int:
        with self._store_errors():
            return await self._producer_ids.next()

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        """A failing metadata store (its disk is full, say) becomes an error response, not a crash.

        If another process holds its lock, that is REQUEST_TIMED_OUT: nothing was changed, and
        clients retry. Requests whose clients do not expect this code translate it. It is logged
        only when it begins and when it ends, because thousands of requests may fail in between.
        """
        try:
            yield
        except StoreError as error:
            if not self._failing:
                logger.error("the metadata store takes no changes: %s", error)  # noqa: TRY400
            self._failing = True
            busy = isinstance(error, StoreBusy)
            code = ErrorCode.REQUEST_TIMED_OUT if busy else ErrorCode.KAFKA_STORAGE_ERROR
            raise ApiError(code, str(error)) from error
        if self._failing:
            logger.warning("the metadata store takes changes again")
        self._failing = False
