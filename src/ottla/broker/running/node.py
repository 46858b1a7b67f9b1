"""One running node: it puts the rooms together, starts them in order and stops them in order.

Start: lock the data directory, open the metadata store, bind the sockets, register (which begins a
new leader epoch, and takes over what Kafka left in the directory of a new cluster), then serve.
Logs that an unclean stop left are repaired when they are asked for, the others meanwhile. A failure
on the way undoes what was done and says what is wrong. Stop: no new requests, parked ones end, the
other nodes are told, everything is synced, checkpoints and the clean-shutdown mark are written.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ottla.broker.access.listeners import (
    REGISTRY,
    WILDCARDS,
    check_exposure,
    endpoint_url,
    runs_table_worker,
)
from ottla.broker.cluster import Cluster
from ottla.broker.errors import CannotListen
from ottla.broker.hosting.data import METADATA_FILE, Data
from ottla.broker.hosting.durability import LateDurability, OsDurability
from ottla.broker.hosting.flusher import GroupFlusher
from ottla.broker.hosting.partitions import Partitions
from ottla.broker.running import reserve
from ottla.broker.running.binding import bound, first_connection, listen
from ottla.broker.running.entrance import Entrance, authorizer_of, first_users_of
from ottla.broker.running.jobs import Jobs
from ottla.broker.running.services import Services
from ottla.broker.running.settings import Settings
from ottla.broker.serving.answer_memory import AnswerMemory
from ottla.broker.serving.dispatch import Dispatcher
from ottla.broker.serving.fetch_sessions import FetchSessions
from ottla.broker.workers import BLOCKING_THREADS, Workers
from ottla.clock import SYSTEM
from ottla.log.directory import DirectoryLocked, check_unsupervised
from ottla.log.errors import LogError
from ottla.metadata.changes.configs import SetFeature
from ottla.metadata.changes.nodes import RegisterBroker, SetBrokerFenced
from ottla.metadata.errors import ChangeRefused, StoreError
from ottla.metadata.image import Endpoint
from ottla.metadata.metadata import CHANGE_WAIT_SECONDS, Metadata
from ottla.randomness import RANDOM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ottla.broker.hosting.durability import Durability
    from ottla.broker.hosting.journal import JournalDurability
    from ottla.broker.membership.leadership import Leadership
    from ottla.broker.running.console import ConsoleDoor
    from ottla.broker.running.monitoring import Monitoring
    from ottla.broker.running.registry import ServedRegistry
    from ottla.broker.running.table_worker import TableWorker
    from ottla.clock import Clock
    from ottla.log.checkpoints import TopicPartition
    from ottla.metadata.changes.apply import Change, Decision
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import MetadataImage

FEATURES: Final = {
    "metadata.version": 25,
    "group.version": 1,
    "transaction.version": 2,
    "share.version": 1,
}

# A sibling that takes over recovers a dead node's logs under its lock: seconds at most.
LOCK_SECONDS: Final = 10.0
LOCK_LOOK_SECONDS: Final = 0.02
HANDOVER: Final = "handover"  # of `ottla.cluster.layout`, which one node alone does not load

logger = logging.getLogger(__name__)


class Node:
    """`await Node.start(...)` gives one that serves; `await node.stop()` ends it."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: Settings,
        data: Data,
        metadata: Metadata,
        *,
        ephemeral: bool,
        siblings_root: Path | None,
        shared: Mapping[str, Sequence[socket.socket]],
        clock: Clock,
    ) -> None:
        self.config = config
        self._shared = shared
        self.clock = clock
        self.started = clock.wall()
        self.settings = settings
        self.node_id = config.node_id
        self._ephemeral = ephemeral
        self.data = data
        self.metadata = metadata
        self.leadership: Leadership | None = None
        self._arrivals: set[asyncio.Task[None]] = set()
        if metadata.image.broker_configs:
            settings.adopt(metadata.image)
        self.cluster = Cluster(metadata, config)
        self.workers = Workers()
        self.data.checkpoints.start(self.workers.executor)
        self.partitions = Partitions(self.cluster, self.data, self.workers)
        self.fetch_sessions = FetchSessions(
            config.get_int("max.incremental.fetch.session.cache.slots"),
            lambda: RANDOM.getrandbits(31),
        )
        flusher = GroupFlusher(self.workers.executor, BLOCKING_THREADS)
        self.durability: Durability = flusher
        self._late: LateDurability[JournalDurability] | None = None
        # An unneeded sync would make every acknowledgement slower.
        if ephemeral or settings.flush_mode == "os":
            self.durability = OsDurability(flusher)
        elif settings.flush_mode == "journal":
            self.durability = self._late = LateDurability(partial(self._make_journal, flusher))
        self.partitions.left = self.durability.forget
        self.partitions.durable = self.durability.sync
        self.addresses: dict[str, tuple[str, int]] = {}
        self.servers: list[asyncio.Server] = []
        self.monitoring: Monitoring | None = None
        self.console: ConsoleDoor | None = None
        self.registry: ServedRegistry | None = None
        self.table_worker: TableWorker | None = None
        self._root = siblings_root or data.path
        self._registry_sockets: Sequence[socket.socket] = ()
        self._registry_waits: asyncio.Task[None] | None = None
        requests: dict[int, int] = {}
        self.services = Services(
            clock=clock,
            cluster=self.cluster,
            settings=self.settings,
            data=self.data,
            partitions=self.partitions,
            durability=self.durability,
            workers=self.workers,
            fetch_sessions=self.fetch_sessions,
            answers=AnswerMemory(self.settings.queued_max_response_bytes, clock.monotonic),
            addresses=self.addresses,
            authorizer=authorizer_of(config, metadata.image),
            requests=requests,
        )
        self.dispatcher = Dispatcher(self.services, requests)
        self.services.load.connections = self.dispatcher.connections
        self.jobs = Jobs(
            self.services,
            self.dispatcher.connections,
            metadata.poll if siblings_root is not None or self._has_users() else None,
            has_siblings=siblings_root is not None,
        )
        if siblings_root is not None:
            self._join(siblings_root)
        self._end_watch: Callable[[], None] = lambda: None
        self.entrance = Entrance(config, self.services, self.dispatcher, metadata)

    def _join(self, root: Path) -> None:
        """Other nodes work below this root, too."""
        from ottla.broker.membership.leadership import Leadership

        self.leadership = Leadership(
            root,
            self.node_id,
            self.metadata,
            self.data,
            self.partitions,
            self.workers,
            ephemeral=self._ephemeral,
            accept_loss=self.settings.accepts_lost_journal,
        )
        self.partitions.arrived = self._arrived
        self.jobs.is_deaf = self.leadership.is_deaf

    def _has_users(self) -> bool:
        """Whether `ottla user create --data-dir` may have added one meanwhile."""
        return self.services.authorizer is not None or any(
            listener.has_sasl for listener in self.settings.listeners
        )

    @classmethod
    async def start(
        cls,
        config: BrokerConfig,
        path: Path,
        *,
        ephemeral: bool = False,
        siblings: bool = False,
        shared: Mapping[str, Sequence[socket.socket]] = MappingProxyType({}),
        clock: Clock = SYSTEM,
    ) -> Node:
        """With `siblings` it is one of several nodes, in its own directory below `path`.

        `shared` are sockets on which its siblings accept, too, by the listener's name.

        A node that is started alone where there were several takes over from the others.
        """
        root = path
        retirement: list[Decision] = []
        if siblings:
            path = _own_directory(root, config.node_id)
        else:
            check_unsupervised(root)
            if (path / HANDOVER).is_dir():
                retirement = _retirement(root)
                siblings = True
        settings = Settings(config)
        for warning in check_exposure(config, settings.listeners):
            logger.warning("%s", warning)
        keeps_journal = settings.flush_mode == "journal" and not ephemeral
        open_data = partial(
            Data,
            path,
            ephemeral=ephemeral,
            tail_bytes=settings.tail_cache_bytes,
            # More of a partition goes to its own log, so there is no need to keep it.
            fresh_max_bytes=settings.journal_extent_max_bytes if keeps_journal else None,
        )
        data = await _when_free(open_data, clock) if siblings else open_data()
        # One node alone that keeps nothing needs no database.
        file = None if ephemeral and not siblings else root / METADATA_FILE
        try:
            opened = await _open_metadata(file, data, clock, durable=not ephemeral)
        except BaseException:
            with suppress(OSError):  # on a full disk; the next start then recovers every log
                data.mark_clean()
            data.close()
            raise
        node = cls(
            config,
            settings,
            data,
            opened,
            ephemeral=ephemeral,
            siblings_root=root if siblings else None,
            shared=shared,
            clock=clock,
        )
        try:
            await node._begin(retirement, file)
        except BaseException:
            await node._undo()
            raise
        await node._monitor()
        return node

    async def _begin(self, retirement: Sequence[Decision], file: Path | None) -> None:
        """Register, and serve."""
        if self.config.get_bool("remote.log.storage.system.enable"):
            self.services.tiering()
        if not self._ephemeral:
            self.data.claim(self.image.cluster_id, self.node_id)
            await self.workers.run(
                partial(self.data.look_for_journal, accept_loss=self.settings.accepts_lost_journal)
            )
        has_logs = bool(self.data.all_on_disk())
        adopted = await self.workers.run(self._adopt) if has_logs else []
        first_users: list[Change] = []
        if self.config.parsed("ottla.bootstrap.user.file") is not None:
            first_users = await self.workers.run(partial(first_users_of, self.config, self.image))
        self.entrance.warn_of_unused_security()
        await self.entrance.open()
        await self.entrance.check_own_rights(talks_to_nodes=self.leadership is not None)
        await self._bind()
        if self.settings.console_listener is not None:
            await self._open_console()
        await self._register([*adopted, *first_users, *retirement])
        if has_logs:
            await self.workers.run(partial(self.data.set_aside_strays, self.image))
        await self._keep_reserve(file)
        self.data.keep_leftover_of(self.image)
        self._end_watch = self.metadata.watch(self._image_changed)
        self.services.start()
        if self.leadership is not None:
            self.leadership.start()
        self.partitions.start()
        self.jobs.start()
        if self._registry_sockets:
            await self._open_registry()
        for server in self.servers:
            await server.start_serving()
        if self.console is not None:
            self.console.start()
        if runs_table_worker(self.config):
            await self._run_table_worker()
        if self.services.tiering.made is not None:
            self.services.tiering.made.start()

    async def stop(self) -> None:
        """Stop serving and leave a directory that starts without recovery."""
        self._close_servers()
        await self._end_work()
        await self.dispatcher.connections.close()
        # From here on the image may have new leaders for logs this node still has open.
        self._end_watch()
        if self.leadership is not None:
            await self._fence()
        await self.services.stop()
        await self.durability.drain()
        try:
            await self._close_data()
        finally:
            await self._give_back()

    async def kill(self) -> None:
        """End as a process does that is killed: nothing is answered, synced or told."""
        self._close_servers()
        self._end_watch()
        for connection in self.dispatcher.connections:
            connection.abort()
        await self._end_work()
        await self.services.stop()
        await self.partitions.close(clean=False)
        await self.durability.close()
        await self._give_back()

    async def _end_work(self) -> None:
        """End all that works by itself, while connections are still there."""
        if self.console is not None:
            await self.workers.run(self.console.close)
        if self.table_worker is not None:
            await self.workers.run(self.table_worker.close)
        if self.monitoring is not None:
            await self.monitoring.close()
        await self._close_registry()
        await self.entrance.stop_looking()
        await self.jobs.stop()
        if self.leadership is not None:
            await self.leadership.stop()
        for task in self._arrivals:
            task.cancel()
        await asyncio.gather(*self._arrivals, return_exceptions=True)
        if self.services.tiering.made is not None:
            # It talks to this node as a client does.
            await self.services.tiering.made.stop()

    def _arrived(self, names: Sequence[TopicPartition]) -> None:
        task = asyncio.create_task(self.services.arrived(names))
        self._arrivals.add(task)
        task.add_done_callback(self._arrivals.discard)

    def _image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        self.services.image_changed(before, after)
        if self.leadership is not None:
            self.leadership.image_changed(before, after)
        self.entrance.image_changed(before, after)
        if self.table_worker is not None:
            self.table_worker.image_changed(before, after)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def keeps_journal(self) -> bool:
        return self._late is not None

    @property
    def journal(self) -> JournalDurability | None:
        """None if none is kept, or if it was not needed yet."""
        return None if self._late is None else self._late.made

    def _make_journal(self, flusher: GroupFlusher) -> JournalDurability:
        # Not needed in the other modes, nor to be ready.
        from ottla.broker.hosting.journal import JournalDurability

        settings = self.settings
        return JournalDurability(
            self.data,
            flusher,
            self.workers.executor,
            self.clock,
            node_id=self.node_id,
            path=settings.journal_dir,
            total_bytes=settings.journal_bytes,
            extent_max_bytes=settings.journal_extent_max_bytes,
        )

    # -- starting and stopping --------------------------------------------------------------------

    async def _bind(self) -> None:
        for listener in self.settings.listeners:
            try:
                sockets = await bound(listener.host, listener.port)
            except OSError as error:
                where = f"listener {listener.name} at {listener.host}:{listener.port}"
                raise CannotListen.because(error, where) from error
            self.addresses[listener.name] = sockets[0].getsockname()[:2]
            sockets += self._shared.get(listener.name, ())
            self._size_buffers(sockets)
            for one in sockets:
                server = await asyncio.get_running_loop().create_server(
                    partial(self.entrance.connection, listener),
                    sock=one,
                    start_serving=False,
                    backlog=self.config.get_int("socket.listen.backlog.size"),
                )
                self.servers.append(server)

        registry = self.settings.registry_listener
        if registry is not None:
            try:
                self._registry_sockets = await bound(registry.host, registry.port)
            except OSError as error:
                where = f"the schema registry at {registry.host}:{registry.port}"
                raise CannotListen.because(error, where) from error

    @property
    def registry_url(self) -> str | None:
        """Where this node serves the schema registry, if it does."""
        endpoint = self.image.brokers[self.node_id].listeners.get(REGISTRY)
        return None if endpoint is None else endpoint_url(endpoint)

    async def _open_registry(self) -> None:
        """Serve the registry: now, or when the first client comes if it is empty.

        Certificates and ways to log in are read now, so that what is wrong with them is told.
        """
        if find_spec("h11") is None:
            raise CannotListen("the schema registry needs h11: pip install 'ottla[registry]'")
        listener = self.settings.registry_listener
        assert listener is not None
        topic = self.cluster.registry_topic
        is_empty = topic is None or self.image.topic(topic) is None
        is_plain = not listener.has_tls and not self.settings.registry_asks
        if is_empty and is_plain and self.leadership is None:
            listen(self._registry_sockets)
            self._registry_waits = asyncio.create_task(self._registry_when_asked())
        else:
            await self._serve_registry()

    async def _registry_when_asked(self) -> None:
        try:
            await first_connection(self._registry_sockets)
            await self._serve_registry()
        except Exception:
            logger.exception("the schema registry does not start")
            raise

    async def _serve_registry(self) -> None:
        # Not needed by a broker without it.
        await self.workers.run(partial(import_module, "ottla.broker.running.registry"))
        from ottla.broker.running.registry import ServedRegistry

        (await self.services.registry.ready()).start()
        self.registry = await self.workers.run(partial(ServedRegistry, self))
        shared = self._shared.get(REGISTRY, ())
        await self.registry.start([*self._registry_sockets, *shared])

    async def _close_registry(self) -> None:
        if self._registry_waits is not None:
            self._registry_waits.cancel()
            await asyncio.gather(self._registry_waits, return_exceptions=True)
        if self.registry is not None:
            await self.registry.close()
        for one in self._registry_sockets:
            one.close()

    async def _monitor(self) -> None:
        listener = self.settings.metrics_listener
        if listener is None:
            return
        # Not needed by a broker without them.
        from ottla.broker.running.monitoring import Monitoring

        try:
            self.monitoring = await self.workers.run(partial(Monitoring.of, self))
            await self.monitoring.start(await bound(listener.host, listener.port))
        except OSError as error:
            await self.stop()
            where = f"metrics at {listener.host}:{listener.port}"
            raise CannotListen.because(error, where, "--metrics-port 0") from error
        except BaseException:
            await self.stop()
            raise

    async def _open_console(self) -> None:
        # Not needed by a broker without it.
        from ottla.broker.running.console import STATE, opened

        state = None if self._ephemeral else self.data.path / STATE
        self.console = await opened(self.settings, self.config, self.addresses, state)

    async def _run_table_worker(self) -> None:
        # Not needed by a broker without it.
        await self.workers.run(partial(import_module, "ottla.broker.running.table_worker"))
        from ottla.broker.running.table_worker import TableWorker

        self.table_worker = await TableWorker.of(self, self._root)
        if self.table_worker is not None:
            self.table_worker.start(self.image)

    def _size_buffers(self, listening: Sequence[socket.socket]) -> None:
        """Connections inherit them from the socket they are accepted on."""
        for key, option in (
            ("socket.send.buffer.bytes", socket.SO_SNDBUF),
            ("socket.receive.buffer.bytes", socket.SO_RCVBUF),
        ):
            size = self.config.get_int(key)
            if size >= 0:
                for one in listening:
                    one.setsockopt(socket.SOL_SOCKET, option, size)

    def _adopt(self) -> list[Change]:
        """What makes the logs this cluster's that were here before it knew any broker."""
        found = self.data.all_on_disk()
        if self.image.brokers or not found:
            return []
        from ottla.broker.hosting.adoption import adoption

        return adoption(self.data.path, found, self.node_id)

    async def _keep_reserve(self, file: Path | None) -> None:
        if file is not None and not self._ephemeral:
            await self.workers.run(partial(reserve.keep, file.parent))

    async def _register(self, adopted: Sequence[Change | Decision]) -> None:
        endpoints = {}
        for listener in self.settings.listeners:
            own = listener.host, listener.port
            host, port = self.settings.advertised.get(listener.name, own)
            if host in WILDCARDS:
                # It means nothing to a client; loopback at least reaches it from here.
                host = "127.0.0.1"
            _, bound_port = self.addresses[listener.name]
            endpoints[listener.name] = Endpoint(host, port or bound_port, listener.protocol)
            if self.services.door is not None:
                self.services.door.check_host(listener, host)
        registry = self.settings.registry_listener
        if registry is not None:
            host = "127.0.0.1" if registry.host in WILDCARDS else registry.host
            port = self._registry_sockets[0].getsockname()[1]
            endpoints[registry.name] = Endpoint(host, port, registry.protocol)
        rack = self.config.parsed("broker.rack")
        await self.metadata.change(
            RegisterBroker(self.node_id, endpoints, None if rack is None else str(rack)),
            _missing_features,
            *adopted,
        )

    async def _fence(self) -> None:
        """Tell other nodes not to send clients here; a start reverses it."""
        epoch = self.image.brokers[self.node_id].epoch
        try:
            await self.metadata.change(SetBrokerFenced(self.node_id, epoch, fenced=True))
        except (StoreError, ChangeRefused):
            logger.exception("could not tell the other nodes that this node stops")

    async def _close_data(self) -> None:
        # The directory is deleted next; no need for a clean stop.
        clean = not self._ephemeral
        await self.partitions.close(clean=clean)
        if clean:
            try:
                await self.data.checkpoints.durable()
            except LogError:
                logger.exception("checkpoints not written; the next start recovers every log")
                clean = False
        await self.durability.close()
        if clean:
            await self.workers.run(self.data.mark_clean)

    async def _give_back(self) -> None:
        """Keep the directory locked while a thread of this process can still write to it."""
        await self.entrance.close()
        await self.metadata.close()
        await self.workers.ended()
        self.data.close()

    def _close_servers(self) -> None:
        for server in self.servers:
            server.close()
        self.dispatcher.connections.end()

    async def _undo(self) -> None:
        self._close_servers()
        if self.console is not None:
            await self.workers.run(self.console.close)
        if self.table_worker is not None:
            await self.workers.run(self.table_worker.close)
        await self._close_registry()
        await self.entrance.stop_looking()
        await self.jobs.stop()
        if self.leadership is not None:
            await self.leadership.stop()
        await self.partitions.close(clean=False)
        await self._give_back()


async def _open_metadata(file: Path | None, data: Data, clock: Clock, *, durable: bool) -> Metadata:
    """The store in a file, or one in memory."""
    if file is None:
        from ottla.metadata.stores.memory import MemoryMetadataStore

        return await Metadata.open(MemoryMetadataStore, clock=clock, blocks=False)
    # Not needed by an ephemeral broker.
    from ottla.metadata.stores.sqlite import SqliteMetadataStore

    reserve.spend(file.parent)
    return await Metadata.open(
        lambda: SqliteMetadataStore(file, cluster_id=data.cluster_id, durable=durable),
        wait=CHANGE_WAIT_SECONDS,
        clock=clock,
    )


def _own_directory(root: Path, node_id: int) -> Path:
    from ottla.broker.membership.places import node_path

    path = node_path(root, node_id)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _retirement(root: Path) -> list[Decision]:
    """One node goes on where there were several."""
    from ottla.broker.membership.retirement import check_stopped, retire_above

    check_stopped(root, 1)
    return [retire_above(1)]


async def _when_free(open_data: Callable[[], Data], clock: Clock) -> Data:
    """Open the directory; a sibling may just be taking partitions out of it."""
    deadline = clock.monotonic() + LOCK_SECONDS
    while True:
        try:
            return open_data()
        except DirectoryLocked:
            if clock.monotonic() > deadline:
                raise
        await asyncio.sleep(LOCK_LOOK_SECONDS)


def _missing_features(image: MetadataImage) -> list[Change]:
    return [
        SetFeature(name, level)
        for name, level in FEATURES.items()
        if image.features.get(name) != level
    ]
