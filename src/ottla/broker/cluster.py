"""The cluster as this node sees it and changes it: the image, who serves where, proposals."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.metadata.changes.apply import apply
from ottla.metadata.errors import StoreError
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metadata.changes.apply import Change
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import Broker, Endpoint, MetadataImage
    from ottla.metadata.stores.sqlite import SqliteMetadataStore

logger = logging.getLogger(__name__)


class Cluster:
    """What every node knows, and the configuration and id of this one."""

    def __init__(self, store: SqliteMetadataStore, config: BrokerConfig) -> None:
        self._store = store
        self.config = config
        self.node_id = config.node_id
        self._producer_ids = iter(range(0))

    @property
    def image(self) -> MetadataImage:
        return self._store.image

    def endpoints(self, listener: str) -> list[tuple[Broker, Endpoint]]:
        """The brokers that are up, with the address of their listener of this name."""
        return [
            (broker, broker.listeners[listener])
            for broker in self.image.brokers.values()
            if not broker.fenced and listener in broker.listeners
        ]

    def propose(self, change: Change) -> MetadataImage:
        """Make a change to the cluster; it is durable, and this node has adopted it, on return."""
        with _store_errors():
            return self._store.propose(change)

    def try_out(self, change: Change) -> MetadataImage:
        """What a change would lead to."""
        return apply(self.image, change)

    def next_producer_id(self) -> int:
        producer_id = next(self._producer_ids, None)
        if producer_id is None:
            with _store_errors():
                self._producer_ids = iter(self._store.allocate_producer_ids(self.node_id))
            producer_id = next(self._producer_ids)
        return producer_id


@contextmanager
def _store_errors() -> Iterator[None]:
    """A failing metadata store (its disk is full, say) becomes an error response, not a crash."""
    try:
        yield
    except StoreError as error:
        logger.error("the metadata store takes no changes: %s", error)  # noqa: TRY400
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
