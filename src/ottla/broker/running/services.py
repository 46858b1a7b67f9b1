"""The services of a node: created on first use, notified in order of events.

- `Lazy` is how one service gets another, and how a handler gets one: calling it gives the service,
  which is made by the first call. `made` looks without making.
- To import a service's modules takes long enough for others to notice. A thread does it before the
  first request of an API that needs the service (`dispatch`), or where `ready` is awaited.
- A service takes in its constructor what it uses. Two that use each other get each other's `Lazy`.
- A service may have these methods; only services that exist are called, in the order given here:
  `start()` when its topic has been used before, `image_changed(before, after)`,
  `connection_closed(connection_id)` and `await stop()`.
- An error of one service is logged, and the next one is called anyway.

The attributes without an underscore are what a handler can ask for by name (`dispatch`).
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.broker.errors import ApiError
from ottla.broker.running.load import Load
from ottla.metadata.names import (
    CONSUMER_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.broker.access.audit import Audit
    from ottla.broker.access.authorizer import Authorizer
    from ottla.broker.access.certificates import Certificates
    from ottla.broker.access.door import Door
    from ottla.broker.access.throttling import Throttling
    from ottla.broker.cluster import Cluster
    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.coordinators.log import Hosting
    from ottla.broker.coordinators.registry import RegistryCoordinator
    from ottla.broker.coordinators.transactions import TransactionService
    from ottla.broker.hosting.checkpoints import Checkpoints
    from ottla.broker.hosting.cleaner import Cleaner
    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.durability import Durability
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.hosting.table_hold import TableHold
    from ottla.broker.running.peers import Peers
    from ottla.broker.running.settings import Settings
    from ottla.broker.serving.answer_memory import AnswerMemory
    from ottla.broker.serving.fetch_sessions import FetchSessions
    from ottla.broker.shares.dead_letters import DeadLetters
    from ottla.broker.shares.partitions import LedSharePartitions
    from ottla.broker.shares.persister import Persister
    from ottla.broker.shares.sessions import MemberSessions
    from ottla.broker.shares.settings import ShareGroupConfigs
    from ottla.broker.tiering.tiering import Tiering
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.log.checkpoints import TopicPartition
    from ottla.metadata.image import MetadataImage

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Lazy(Generic[T]):
    """A service that is made by the first call."""

    __slots__ = ("_make", "_workers", "made", "modules")

    def __init__(self, make: Callable[[], T], workers: Workers, *modules: str) -> None:
        self._make = make
        self._workers = workers
        self.modules = modules
        """Below `ottla.broker`: what is imported for it, and for what it uses all the time."""
        self.made: T | None = None
        """The service, or None if it was not used yet."""

    def __call__(self) -> T:
        if self.made is None:
            self.made = self._make()
        return self.made

    async def ready(self) -> T:
        """The service; the event loop goes on while its modules are imported."""
        if self.made is None:
            await self._workers.run(self.load)
        return self()

    def load(self) -> None:
        """Import the modules. Blocks."""
        for module in self.modules:
            import_module(f"ottla.broker.{module}")


class Services:
    """The services of the node, by name."""

    def __init__(
        self,
        *,
        clock: Clock,
        cluster: Cluster,
        settings: Settings,
        data: Data,
        partitions: Partitions,
        durability: Durability,
        workers: Workers,
        fetch_sessions: FetchSessions,
        answers: AnswerMemory,
        addresses: Mapping[str, tuple[str, int]],
        requests: Mapping[int, int],
        authorizer: Authorizer | None = None,
    ) -> None:
        self.authorizer: Authorizer | None = authorizer
        self.clock: Clock = clock
        self.cluster: Cluster = cluster
        self.settings: Settings = settings
        self.data: Data = data
        self.checkpoints: Checkpoints = data.checkpoints
        self.partitions: Partitions = partitions
        self.durability: Durability = durability
        self.workers: Workers = workers
        self.fetch_sessions: FetchSessions = fetch_sessions
        self.answers: AnswerMemory = answers
        self.audit: Audit | None = None  # where somebody is asked who comes in, or it has a file
        self.certificates: Certificates | None = None  # of the listeners with TLS
        self.door: Door | None = None  # of a node with listeners that ask who comes in
        self.load: Load = Load(requests, clock)
        self._addresses = addresses
        self._requests = requests
        groups, persister = "coordinators.groups", "shares.persister"
        shares = "shares.partitions", "shares.settings", persister, groups
        self.peers: Lazy[Peers] = Lazy(self._peers, workers, "running.peers")
        self.groups: Lazy[GroupService] = Lazy(self._groups, workers, groups)
        self.transactions: Lazy[TransactionService] = Lazy(
            self._transactions, workers, "coordinators.transactions"
        )
        # Made at the start of a node that serves the registry, or never.
        self.registry: Lazy[RegistryCoordinator] = Lazy(
            self._registry, workers, "coordinators.registry"
        )
        self.persister: Lazy[Persister] = Lazy(self._persister, workers, persister)
        self.shares: Lazy[LedSharePartitions] = Lazy(self._shares, workers, *shares)
        self.share_sessions: Lazy[MemberSessions] = Lazy(
            self._share_sessions, workers, "shares.sessions", *shares
        )
        self.share_configs: Lazy[ShareGroupConfigs] = Lazy(
            self._share_configs, workers, "shares.settings"
        )
        self.dead_letters: Lazy[DeadLetters] = Lazy(
            self._dead_letters, workers, "shares.dead_letters"
        )
        # Made when there are quotas.
        self.throttling: Lazy[Throttling] = Lazy(self._throttling, workers, "access.throttling")
        # Made at the start of a node that has a remote tier, or never.
        self.tiering: Lazy[Tiering] = Lazy(self._tiering, workers)
        # Made when a topic has a table.
        self.table_hold: Lazy[TableHold] = Lazy(self._table_hold, workers, "hosting.table_hold")
        self.cleaner: Lazy[Cleaner] = Lazy(self._cleaner, workers, "hosting.cleaner")

    # -- what happens ---------------------------------------------------------------------------

    def start(self) -> None:
        """Load what has been used before."""
        if self.cluster.image.client_quotas:
            self.throttling().adopt(self.cluster.image.client_quotas)
        used = self.data.partitions_on_disk
        if used(CONSUMER_OFFSETS_TOPIC):
            self.groups().start()
        if used(SHARE_GROUP_STATE_TOPIC):
            self.persister().start()
        if used(TRANSACTION_STATE_TOPIC):
            self.transactions().start()

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        """Settings first; coordinators are unloaded before their logs are closed."""
        if after.client_quotas is not before.client_quotas:
            self.throttling().adopt(after.client_quotas)
        for service in (
            self.settings,
            self.authorizer,
            self.door,
            self.persister.made,
            self.transactions.made,
            self.groups.made,
            self.registry.made,
            self.partitions,
            self.tiering.made,
            self.shares.made,
        ):
            if service is not None:
                try:
                    service.image_changed(before, after)
                except Exception:
                    logger.exception("%s failed to apply a change of the cluster", _name(service))

    async def arrived(self, names: Iterable[TopicPartition]) -> None:
        """Logs came from other nodes: their coordinators go on here."""
        for topic, index in names:
            if topic == CONSUMER_OFFSETS_TOPIC:
                (await self.groups.ready()).arrived(index)
            elif topic == SHARE_GROUP_STATE_TOPIC:
                (await self.persister.ready()).coordinators.arrived(index)
            elif topic == TRANSACTION_STATE_TOPIC:
                (await self.transactions.ready()).arrived(index)
            elif self.registry.made is not None and topic == self.cluster.registry_topic:
                self.registry.made.arrived(index)

    def connection_closed(self, connection_id: int) -> None:
        """Release what belonged to a closed connection."""
        if self.share_sessions.made is not None:
            self.share_sessions.made.connection_closed(connection_id)
        if self.throttling.made is not None:
            self.throttling.made.connection_closed(connection_id)

    async def stop(self) -> None:
        """Stop writers first, then what they write to; `tiering` is stopped already."""
        for service in (
            self.shares.made,
            self.transactions.made,
            self.groups.made,
            self.registry.made,
            self.persister.made,
            self.peers.made,
        ):
            if service is not None:
                try:
                    await service.stop()
                except Exception:
                    logger.exception("%s did not stop in good order", _name(service))

    @property
    def loading(self) -> int:
        """How many partitions of coordinators are being loaded."""
        services = self.groups.made, self.transactions.made, self.registry.made
        loading = sum(each.loading for each in services if each is not None)
        if self.persister.made is not None:
            loading += self.persister.made.coordinators.loading
        return loading

    # -- making them ----------------------------------------------------------------------------

    def _hosting(self) -> Hosting:
        from ottla.broker.coordinators.log import Hosting

        return Hosting(
            self.cluster, self.data, self.partitions, self.durability, self.workers, self.clock
        )

    def _cleaner(self) -> Cleaner:
        from ottla.broker.hosting.cleaner import Cleaner

        return Cleaner(self.data, self.partitions, self.workers, self.clock)

    def _table_hold(self) -> TableHold:
        from ottla.broker.hosting.table_hold import TableHold

        return TableHold(self.cluster, self.workers, self._addresses, lambda: self.door)

    def _throttling(self) -> Throttling:
        from ottla.broker.access.throttling import Throttling

        return Throttling(self.cluster.config, self.clock)

    def _peers(self) -> Peers:
        from ottla.broker.running.peers import Peers

        return Peers(self.cluster, lambda: self.door)

    def _groups(self) -> GroupService:
        from ottla.broker.coordinators.groups import GroupService

        return GroupService(self._hosting(), self.persister, self.shares, self.authorizer)

    def _transactions(self) -> TransactionService:
        from ottla.broker.coordinators.transactions import TransactionService

        return TransactionService(self._hosting(), self.groups, self.peers)

    def _registry(self) -> RegistryCoordinator:
        from ottla.broker.coordinators.registry import RegistryCoordinator

        return RegistryCoordinator(self._hosting())

    def _persister(self) -> Persister:
        from ottla.broker.shares.persister import Persister

        return Persister(self._hosting(), self.peers())

    def _shares(self) -> LedSharePartitions:
        from ottla.broker.shares.partitions import Collaborators, LedSharePartitions

        return LedSharePartitions(
            self.partitions,
            Collaborators(
                clock=self.clock,
                configs=self.share_configs,
                persister=self.persister,
                groups=self.groups,
                dead_letters=self.dead_letters,
                tiering=self.tiering,
                workers=self.workers,
            ),
        )

    def _share_sessions(self) -> MemberSessions:
        from ottla.broker.shares.sessions import MemberSessions

        limit = self.cluster.config.get_int("group.share.max.share.sessions")
        return MemberSessions(limit, self.share_configs(), self.shares())

    def _share_configs(self) -> ShareGroupConfigs:
        from ottla.broker.shares.settings import ShareGroupConfigs

        return ShareGroupConfigs(self.cluster)

    def _dead_letters(self) -> DeadLetters:
        from ottla.broker.shares.dead_letters import DeadLetters

        return DeadLetters(
            self.cluster,
            self.partitions,
            self.durability,
            self.peers,
            self.tiering,
            self.workers,
            self.clock,
        )

    def _tiering(self) -> Tiering:
        """The remote tier; `ApiError` on a node that has none."""
        if not self.cluster.config.get_bool("remote.log.storage.system.enable"):
            raise ApiError(
                ErrorCode.REPLICA_NOT_AVAILABLE, "remote.log.storage.system.enable is false."
            )
        from ottla.broker.tiering.tiering import Tiering

        return Tiering(
            self.cluster,
            self.data,
            self.partitions,
            self.workers,
            self.clock,
            addresses=self._addresses,
            door=lambda: self.door,
            table_hold=self.table_hold,
            requests=self._requests,
        )


def _name(service: Any) -> str:
    return type(service).__name__
