"""One running node: it puts the rooms together, starts them in order and stops them in order.

Start: lock the data directory, open the metadata store, bind the sockets, register (which begins a
new leader epoch, and takes over what Kafka left in the directory of a new cluster), recover what an
unclean stop left, then serve. A failure on the way undoes what
was done and says what is wrong. Stop: no new requests, parked ones end, the other nodes are told,
everything is synced, checkpoints and the clean-shutdown mark are written.
"""

from __future__ import annotations

import asyncio
import logging
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.broker.errors import ApiError
from ottla.broker.hosting.data import METADATA_FILE, Data
from ottla.broker.hosting.flusher import GroupFlusher
from ottla.broker.hosting.partitions import Partitions
from ottla.broker.running.jobs import Jobs
from ottla.broker.running.settings import Listener, Settings
from ottla.broker.serving.connection import Connection
from ottla.broker.serving.context import Peer
from ottla.broker.serving.dispatch import Dispatcher
from ottla.broker.serving.fetch_sessions import FetchSessions
from ottla.clock import SYSTEM
from ottla.log.errors import LogError
from ottla.metadata.changes.apply import apply
from ottla.metadata.changes.configs import SetFeature
from ottla.metadata.changes.nodes import RegisterBroker, SetBrokerFenced
from ottla.metadata.errors import ChangeRefused, StoreError
from ottla.metadata.image import Endpoint
from ottla.metadata.names import (
    CONSUMER_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from ottla.metadata.stores.sqlite import MEMORY, SqliteMetadataStore
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path
    from uuid import UUID

    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.coordinators.transactions import TransactionService
    from ottla.broker.hosting.partitions import HostedPartition
    from ottla.broker.running.peers import Peers
    from ottla.broker.shares.dead_letters import DeadLetters
    from ottla.broker.shares.partitions import LedSharePartitions
    from ottla.broker.shares.persister import Persister
    from ottla.broker.shares.settings import ShareGroupConfigs
    from ottla.broker.tiering.reads import RemoteReads
    from ottla.broker.tiering.tiering import Tiering
    from ottla.clock import Clock
    from ottla.metadata.changes.apply import Change
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import Broker, MetadataImage
    from ottla.sharing.sessions import ClosedConnection, ShareSession, ShareSessions

# Syncs overlap on a disk; more threads than this only queue there.
BLOCKING_THREADS: Final = 4
FEATURES: Final = {
    "metadata.version": 25,
    "group.version": 1,
    "transaction.version": 2,
    "share.version": 1,
}

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Node:
    """`await Node.start(...)` gives one that serves; `await node.stop()` ends it."""

    def __init__(
        self,
        config: BrokerConfig,
        path: Path,
        *,
        ephemeral: bool,
        metadata: Path | None,
        clock: Clock,
    ) -> None:
        self.config = config
        self.clock = clock
        self.settings = Settings.of(config)
        # A sync that nobody's data needs would only make every acknowledgement slower.
        self._group_flush = self.settings.group_flush and not ephemeral
        self.node_id = config.node_id
        self._ephemeral = ephemeral
        self.data = Data(path, ephemeral=ephemeral)
        self.shares_metadata = metadata is not None
        own = MEMORY if ephemeral else path / METADATA_FILE
        try:
            self.store = SqliteMetadataStore(metadata or own, cluster_id=self.data.cluster_id)
        except BaseException:
            self.data.close(clean=self.data.clean)
            raise
        self.partitions = Partitions(self)
        self.fetch_sessions = FetchSessions(
            config.get_int("max.incremental.fetch.session.cache.slots"),
            lambda: random.getrandbits(31),
        )
        self.executor = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="ottla")
        self.flusher = GroupFlusher(self.executor, BLOCKING_THREADS)
        self.dispatcher = Dispatcher(self)
        self.jobs = Jobs(self)
        self.tiering: Tiering | None = None
        self.addresses: dict[str, tuple[str, int]] = {}
        self.servers: list[asyncio.Server] = []
        self._producer_ids = iter(range(0))
        self._end_watch: Callable[[], None] = lambda: None

    @classmethod
    async def start(
        cls,
        config: BrokerConfig,
        path: Path,
        *,
        ephemeral: bool = False,
        metadata: Path | None = None,
        clock: Clock = SYSTEM,
    ) -> Node:
        """Nodes of one cluster are given one `metadata` file; a node alone keeps its own."""
        node = cls(config, path, ephemeral=ephemeral, metadata=metadata, clock=clock)
        try:
            if config.get_bool("remote.log.storage.system.enable"):
                from ottla.broker.tiering.tiering import Tiering

                node.tiering = Tiering(node)
            if not ephemeral:
                node.data.claim(node.image.cluster_id, node.node_id)
            adopted = await node.run_blocking(node._adopt) if node.data.all_on_disk() else []
            await node._bind()
            node._register(adopted)
            node.data.set_aside_strays(node.image)
            if not node.data.clean:
                await node._recover()
            node._end_watch = node.store.watch(node._image_changed)
            if node.data.partitions_on_disk(CONSUMER_OFFSETS_TOPIC):
                node.groups.start()
            if node.data.partitions_on_disk(SHARE_GROUP_STATE_TOPIC):
                node.persister.coordinators.start()
            if node.data.partitions_on_disk(TRANSACTION_STATE_TOPIC):
                node.transactions.start()
            node.jobs.start()
            for server in node.servers:
                await server.start_serving()
            if node.tiering is not None:
                node.tiering.start()
        except BaseException:
            await node._undo()
            raise
        return node

    async def stop(self) -> None:
        """Stop serving and leave a directory that starts without recovery."""
        for server in self.servers:
            server.close()
        await self.jobs.stop()
        if self.tiering is not None:
            # It talks to this node as a client does.
            await self.tiering.stop()
        for connection in tuple(self.dispatcher.connections):
            connection.close()
        # From here on the image may say that others lead what this node still has to close.
        self._end_watch()
        if self.shares_metadata:
            self._fence()
        if "shares" in vars(self):
            await self.shares.close()
        if "transactions" in vars(self):
            await self.transactions.close()
        if "groups" in vars(self):
            await self.groups.close()
        if "persister" in vars(self):
            await self.persister.coordinators.close()
        if "peers" in vars(self):
            await self.peers.close()
        await self.flusher.drain()
        await self.run_blocking(self._close_data)
        self.store.close()
        self.executor.shutdown()

    # -- what handlers use ------------------------------------------------------------------------

    @cached_property
    def groups(self) -> GroupService:
        """The group coordinators; a broker whose clients use no groups never loads them."""
        from ottla.broker.coordinators.groups import GroupService

        return GroupService(self)

    @cached_property
    def persister(self) -> Persister:
        """Durable share state; like the groups, loaded only where share groups are used."""
        from ottla.broker.shares.persister import Persister

        return Persister(self)

    @cached_property
    def transactions(self) -> TransactionService:
        """The transaction coordinators; loaded where a transactional id is used."""
        from ottla.broker.coordinators.transactions import TransactionService

        return TransactionService(self)

    @cached_property
    def shares(self) -> LedSharePartitions:
        from ottla.broker.shares.partitions import LedSharePartitions

        return LedSharePartitions(self)

    @cached_property
    def share_sessions(self) -> ShareSessions:
        from ottla.sharing.sessions import ShareSessions

        return ShareSessions(self.config.get_int("group.share.max.share.sessions"))

    @cached_property
    def share_configs(self) -> ShareGroupConfigs:
        from ottla.broker.shares.settings import ShareGroupConfigs

        return ShareGroupConfigs(self)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        from ottla.broker.shares.dead_letters import DeadLetters

        return DeadLetters(self)

    @cached_property
    def peers(self) -> Peers:
        from ottla.broker.running.peers import Peers

        return Peers(self)

    def remote_reads(self) -> RemoteReads:
        """For what is in the remote tier alone; `ApiError` if this node has none."""
        if self.tiering is None:
            raise ApiError(
                ErrorCode.REPLICA_NOT_AVAILABLE, "remote.log.storage.system.enable is false."
            )
        return self.tiering.reads

    async def drop_share_state(self, topic_ids: frozenset[UUID]) -> None:
        """Forget the share state of deleted topics, if there ever was any."""
        if "persister" in vars(self):
            await self.persister.drop_topics(topic_ids)

    def prune_share_state(self) -> None:
        if "persister" in vars(self):
            self.persister.prune()

    def connection_closed(self, connection_id: int) -> None:
        """What a client held for its connection's sake goes back."""
        if "share_sessions" not in vars(self):
            return
        grace = self.share_configs.of
        closed = self.share_sessions.connection_closed(
            connection_id, lambda group: grace(group).session_grace > 0
        )
        self._release_sessions(closed)
        for session in closed.kept:
            asyncio.get_running_loop().call_later(
                grace(session.group).session_grace, self._grace_ended, session
            )

    def _grace_ended(self, session: ShareSession) -> None:
        self._release_sessions(self.share_sessions.grace_ended(session))

    def _release_sessions(self, closed: ClosedConnection) -> None:
        for session in closed.sessions:
            for topic_id, index in session.partitions:
                self.shares.release(session.group, session.member, topic_id, index)
        for group in closed.idle_groups:
            self.shares.drop_group(group)

    @property
    def image(self) -> MetadataImage:
        return self.store.image

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
            return self.store.propose(change)

    def try_out(self, change: Change) -> MetadataImage:
        """What a change would lead to."""
        return apply(self.image, change)

    def appended(self, partitions: Sequence[HostedPartition]) -> Awaitable[None] | None:
        """To be called after appends; what to await for their durability, if that is asked for."""
        if not partitions:
            return None
        if self._group_flush:
            return self.flusher.join(partitions)
        for hosted in partitions:
            hosted.advance(hosted.log.log_end_offset)
            if hosted.log.unflushed >= hosted.log.config.flush_messages:
                self.flusher.join([hosted])
        return None

    def next_producer_id(self) -> int:
        producer_id = next(self._producer_ids, None)
        if producer_id is None:
            with _store_errors():
                self._producer_ids = iter(self.store.allocate_producer_ids(self.node_id))
            producer_id = next(self._producer_ids)
        return producer_id

    async def run_blocking(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, function)

    # -- starting and stopping --------------------------------------------------------------------

    async def _bind(self) -> None:
        for listener in self.settings.listeners:
            server = await asyncio.get_running_loop().create_server(
                partial(self._accept, listener),
                listener.host or None,
                listener.port,
                start_serving=False,
                backlog=self.config.get_int("socket.listen.backlog.size"),
            )
            self.servers.append(server)
            self.addresses[listener.name] = server.sockets[0].getsockname()[:2]

    def _accept(self, listener: Listener) -> Connection:
        return Connection(self.dispatcher, Peer("", listener.name), self.settings.max_request_bytes)

    def _adopt(self) -> list[Change]:
        """What makes the logs this cluster's that were here before it knew any broker."""
        found = self.data.all_on_disk()
        if self.image.brokers or not found:
            return []
        from ottla.broker.hosting.adoption import adoption

        return adoption(self.data.path, found, self.node_id)

    def _register(self, adopted: Sequence[Change]) -> None:
        endpoints = {}
        for listener in self.settings.listeners:
            told = self.settings.advertised.get(listener.name, listener)
            _, port = self.addresses[listener.name]
            # A wildcard address means nothing to a client; loopback at least reaches it from here.
            host = "127.0.0.1" if told.host in ("", "0.0.0.0", "::") else told.host
            endpoints[listener.name] = Endpoint(host, told.port or port)
        rack = self.config.parsed("broker.rack")
        features = [
            SetFeature(name, level)
            for name, level in FEATURES.items()
            if self.image.features.get(name) != level
        ]
        self.store.propose(
            RegisterBroker(self.node_id, endpoints, None if rack is None else str(rack)),
            *features,
            *adopted,
        )

    def _fence(self) -> None:
        """Tell the other nodes not to send anybody here; a start takes it back."""
        epoch = self.image.brokers[self.node_id].epoch
        try:
            self.store.propose(SetBrokerFenced(self.node_id, epoch, fenced=True))
        except (StoreError, ChangeRefused):
            logger.exception("the other nodes are not told that this one stops")

    async def _recover(self) -> None:
        """After an unclean stop every log is walked before anyone may ask for it."""
        for topic, index in self.data.all_on_disk():
            try:
                await self.run_blocking(partial(self.partitions.find, topic, index))
            except (ApiError, LogError):
                logger.exception("could not recover %s-%d", topic, index)

    def _image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        moved = before.topics_by_name is not after.topics_by_name
        # Coordinators let go before the logs they append to are closed.
        if moved and "persister" in vars(self):
            self.persister.coordinators.leaders_changed(after)
        if moved and "transactions" in vars(self):
            self.transactions.leaders_changed(after)
        if moved and "groups" in vars(self):
            self.groups.topics_changed(after)
        self.partitions.image_changed(before, after)
        if self.tiering is not None:
            self.tiering.image_changed(before, after)
        if moved and "shares" in vars(self):
            self.shares.drop_moved()

    def _close_data(self) -> None:
        # What is deleted next need not be left in good order.
        clean = self.partitions.close(clean=not self._ephemeral)
        try:
            if not self._ephemeral:
                self.data.checkpoint(self.partitions)
        except OSError:
            logger.exception("checkpoints not written; the next start recovers every log")
            clean = False
        self.data.close(clean=clean)

    async def _undo(self) -> None:
        for server in self.servers:
            server.close()
        await self.jobs.stop()
        self.partitions.close(clean=False)
        self.data.close(clean=False)
        self.store.close()
        self.executor.shutdown()


@contextmanager
def _store_errors() -> Iterator[None]:
    """A metadata store that fails (its disk is full, say) is an answer, not the broker's end."""
    try:
        yield
    except StoreError as error:
        logger.error("the metadata store takes no changes: %s", error)  # noqa: TRY400
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
