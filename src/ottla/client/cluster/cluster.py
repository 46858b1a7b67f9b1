"""The cluster as one thing to send requests to: finds the broker, the connection, the version.

Rules:

- Connections are kept by address; the address of a broker comes from the last metadata answer.
  Requests to a coordinator use connections of their own, and so do questions `Beside` fetches,
  since a fetch that waits for data holds up the later requests on its connection.
- There is no background work. Of the calls that need a connection or fresher metadata one gets it
  and the others wait (`Turns`), so nothing outlives the calls that need it.
- After a failed connection attempt, a broker is not tried again for a while (exponential back-off).
- `send` is one attempt. `retry` repeats an attempt by the rules of `ottla.client.cluster.retry`.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar

from ottla.client import arguments
from ottla.client.cluster.bootstrap import parse_bootstrap
from ottla.client.cluster.connection import CONNECT_TIMEOUT, REQUEST_TIMEOUT, Address, Connection
from ottla.client.cluster.exchange import api_key_of
from ottla.client.cluster.retry import RECONNECT, Stale, delay_after, forgets
from ottla.client.cluster.throttle import Throttled
from ottla.client.cluster.turns import Turns
from ottla.client.cluster.view import NO_LEADER, Broker, ClusterView, Topic, TopicPartition
from ottla.client.errors import (
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    RequestTimedOut,
    WrongPlace,
    check,
    kafka_error,
)
from ottla.client.security import PLAINTEXT, Security
from ottla.randomness import RANDOM
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Iterable,
        Mapping,
        Sequence,
    )
    from types import TracebackType

    from ottla.client.cluster.protection import Protection

T = TypeVar("T")

API_TIMEOUT: Final = 60.0  # default.api.timeout.ms of Kafka's clients
METADATA_MAX_AGE: Final = 300.0  # metadata.max.age.ms
NEWEST: Final = 0x7FFF


class Coordinator(NamedTuple):
    """The broker that coordinates a group (key type 0), a transaction (1) or share state (2)."""

    key: str
    key_type: int = 0


class Beside(NamedTuple):
    """A broker that may hold a fetch of this client: the request does not wait behind it."""

    node: int


Target: TypeAlias = int | Literal["any", "controller"] | TopicPartition | Coordinator | Beside
Use: TypeAlias = Literal["data", "coordination", "questions"]


class _Place(NamedTuple):
    address: Address
    use: Use = "data"


@dataclass(slots=True)
class _Link:
    """The connection to one place, and how often in a row it could not be made."""

    turns: Turns = field(default_factory=Turns)
    connection: Connection | None = None
    failures: int = 0
    not_before: float = -math.inf

    @property
    def is_open(self) -> bool:
        return self.connection is not None and self.connection.is_open


class Client:
    """Sends requests where they belong. Times are in seconds."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str | None = "ottla",
        security: Security = PLAINTEXT,
        connect_timeout: float = CONNECT_TIMEOUT,
        request_timeout: float = REQUEST_TIMEOUT,
        api_timeout: float = API_TIMEOUT,
        metadata_max_age: float = METADATA_MAX_AGE,
        max_versions: Mapping[int, int] | None = None,
        random: Callable[[], float] = RANDOM.random,
    ) -> None:
        arguments.instance("security", security, Security, "a Security")
        self.bootstrap = parse_bootstrap(bootstrap)
        if client_id is not None and client_id != "":
            arguments.text("client_id", client_id)
        for name, given in (
            ("connect_timeout", connect_timeout),
            ("request_timeout", request_timeout),
            ("api_timeout", api_timeout),
            ("metadata_max_age", metadata_max_age),
        ):
            arguments.seconds(name, given)
        arguments.function("random", random)
        self.request_timeout = min(request_timeout, api_timeout)
        self.api_timeout = api_timeout
        self.view = ClusterView()
        self._throttled = Throttled()
        self._client_id = client_id
        self._protection = _protection_of(security)
        self._connect_timeout = min(connect_timeout, api_timeout)
        self._metadata_max_age = metadata_max_age
        self._max_versions = arguments.versions("max_versions", max_versions)
        self._random = random
        self._links: dict[_Place, _Link] = {}
        self._coordinators: dict[Coordinator, int] = {}
        self._metadata_turns = Turns()
        self._metadata_time = -math.inf
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def check_loop(self) -> None:
        """Raise unless this is the event loop of the first call, which has the connections."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop and not self._closed:
            raise WrongPlace(
                "this client belongs to the event loop of its first call, and this is another one; "
                "make a client in each asyncio.run, or use the blocking one of ottla.sync"
            )

    async def close(self) -> None:
        """Close every connection; calls that are under way end with an error."""
        self.check_loop()
        self._closed = True
        links = list(self._links.values())
        self._links.clear()
        open_ones = [link.connection for link in links if link.connection is not None]
        await together(connection.close() for connection in open_ones)

    @property
    def throttled_seconds(self) -> float:
        """How long brokers have told this client to wait, for quotas."""
        return self._throttled.seconds

    async def send(
        self,
        request: Any,
        *,
        to: Target,
        min_version: int = 0,
        max_version: int = NEWEST,
        patience: float = 0.0,
    ) -> Any:
        """The answer to one attempt: the response type of the request's schema module.

        The caller handles error codes in the response. `min_version` and `max_version` are the
        versions of the API that the caller supports. For requests that wait at the broker, pass how
        long as `patience`; it is added to the timeout.
        """
        connection = await self.connection_to(to)
        version = connection.pick_version(api_key_of(request), min_version, max_version)
        return await connection.send(request, version, self.request_timeout + patience)

    @asynccontextmanager
    async def within_api_timeout(self, what: str, more: float = 0.0) -> AsyncIterator[None]:
        """One attempt, connecting included, is given up after `api_timeout` seconds, and `more`."""
        limit = self.api_timeout + more
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError:
            raise RequestTimedOut(f"given up after {limit:g} s: {what}") from None

    async def retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        repeatable: bool = True,
        deadline: float | None = None,
    ) -> T:
        """The result of the first attempt that succeeds or fails for good, within `api_timeout`.

        `repeatable` says whether a request that may have been served can be sent once more. Calls
        that share an `api_timeout` give its end as `deadline`, by the loop's clock.
        """
        self.check_loop()
        now = asyncio.get_running_loop().time
        if deadline is None:
            deadline = now() + self.api_timeout
        failures = 0
        last: ClientError | None = None
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await attempt()
            except TimeoutError:
                why = last or "no broker has answered"
                gave_up = f"given up after {self.api_timeout:g} s: {why}"
                raise RequestTimedOut(gave_up) from last
            except ClientError as error:
                failures += 1
                stale = forgets(error, failures, repeatable=repeatable)
                if stale is None:
                    raise
                delay = delay_after(error, failures, self._random())
                if now() + delay >= deadline:
                    raise
                last = error
                self.forget(stale)
            await asyncio.sleep(delay)

    def forget(self, stale: Stale) -> None:
        """Look these things up again when they are needed next."""
        if Stale.METADATA in stale:
            self._metadata_time = -math.inf
        if Stale.COORDINATORS in stale:
            self._coordinators.clear()

    async def connection_to(self, target: Target) -> Connection:
        """An open connection to the target."""
        self.check_loop()
        if isinstance(target, TopicPartition):
            return await self._connection(await self._broker(await self.leader_of(target)))
        if isinstance(target, Coordinator):
            node = await self.coordinator_of(target)
            return await self._connection(await self._broker(node), "coordination")
        if isinstance(target, Beside):
            return await self._connection(await self._broker(target.node), "questions")
        if isinstance(target, int):
            return await self._connection(await self._broker(target))
        if target == "controller":
            await self._fresh_view()
            if self.view.controller_id in self.view.brokers:
                return await self._connection(await self._broker(self.view.controller_id))
        return await self._any_connection()

    async def leader_of(self, partition: TopicPartition) -> int:
        """The broker that leads a partition, from the cache where that will do."""
        topic = (await self.topics([partition.topic]))[partition.topic]
        leader = topic.leader_of(partition.partition)
        if leader == NO_LEADER:
            known = any(one.index == partition.partition for one in topic.partitions)
            self.forget(Stale.METADATA)
            raise kafka_error(
                ErrorCode.LEADER_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"find the leader of {partition}",
            )
        return leader

    async def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """These topics, from the cache where it is fresh; a `KafkaError` if one is missing."""
        self.check_loop()
        wanted = list(names)
        await self._fresh_view(wanted)
        for name in wanted:
            if name not in self.view.topics:
                code = self.view.missing.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                raise kafka_error(code, f"find topic {name!r}")
        return {name: self.view.topics[name] for name in wanted}

    async def refresh(
        self, topics: Iterable[str] | None, *, create_missing: bool = False
    ) -> ClusterView:
        """Ask for these topics (None: all) and the brokers, even if they are cached."""
        self.check_loop()

        async def work() -> None:
            await self._refresh(topics, create_missing=create_missing)

        await self._metadata_turns.take(lambda: False, work)
        return self.view

    async def _fresh_view(self, wanted: Sequence[str] = ()) -> None:
        async def work() -> None:
            # The other cached topics are old as well, so refresh them with the same request.
            await self._refresh({*wanted, *self.view.topics})

        if not self._is_fresh(wanted):
            await self._metadata_turns.take(lambda: self._is_fresh(wanted), work)

    def _is_fresh(self, wanted: Sequence[str]) -> bool:
        age = asyncio.get_running_loop().time() - self._metadata_time
        known = self.view.topics
        return age < self._metadata_max_age and all(name in known for name in wanted)

    async def _refresh(self, topics: Iterable[str] | None, *, create_missing: bool = False) -> None:
        asked = None if topics is None else sorted(set(topics))
        named = None if asked is None else [MetadataRequestTopic(name=name) for name in asked]
        connection = await self._any_connection()
        # Before version 4 to ask about a topic was to create it.
        version = connection.pick_version(api_key_of(MetadataRequest()), low=4)
        answer: MetadataResponse = await connection.send(
            MetadataRequest(topics=named, allow_auto_topic_creation=create_missing),
            version,
            self.request_timeout,
        )
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.view = ClusterView()
        check(answer.error_code, "ask for metadata")
        self.view = (ClusterView() if asked is None else self.view).after(answer)
        if asked is None or self.view.topics.keys() <= set(asked):
            self._metadata_time = asyncio.get_running_loop().time()

    async def coordinator_of(self, wanted: Coordinator) -> int:
        """The broker that coordinates a group or a transaction, from the cache where it is."""
        node = self._coordinators.get(wanted)
        if node is not None:
            return node
        request = FindCoordinatorRequest(
            key=wanted.key, key_type=wanted.key_type, coordinator_keys=[wanted.key]
        )
        # Version 0 can only look for groups.
        low = 1 if wanted.key_type else 0
        answer: FindCoordinatorResponse = await self.send(request, to="any", min_version=low)
        what = f"find the coordinator of {wanted.key!r}"
        check(answer.error_code, what, answer.error_message)
        found = answer.coordinators[0] if answer.coordinators else answer
        check(found.error_code, what, found.error_message)
        address = Address(found.host, found.port)
        if found.node_id not in self.view.brokers:
            self.view = self.view.with_broker(Broker(found.node_id, address))
        self._coordinators[wanted] = found.node_id
        return found.node_id

    async def _broker(self, node: int) -> Address:
        if node not in self.view.brokers:
            await self._fresh_view()
        if node not in self.view.brokers:
            self.forget(Stale.METADATA)
            raise BrokerUnreachable(f"broker {node} is not in the cluster, or is down")
        return self.view.brokers[node].address

    async def _any_connection(self) -> Connection:
        """An open connection if there is one, else to whichever known broker answers first."""
        known = [broker.address for broker in self.view.brokers.values()]
        candidates = list(dict.fromkeys(known)) or self.bootstrap
        start = int(self._random() * len(candidates))
        candidates = candidates[start:] + candidates[:start]
        candidates += [address for address in self.bootstrap if address not in candidates]
        muted = None
        for address in candidates:
            link = self._links.get(_Place(address))
            if link is not None and link.connection is not None and link.is_open:
                if not link.connection.is_muted:
                    return link.connection
                muted = link.connection
        if muted is not None:
            return muted
        failure = BrokerUnreachable("no broker is known")
        # The ones that failed longest ago, or never, first.
        for address in sorted(candidates, key=self._not_before):
            try:
                return await self._connection(address)
            except BrokerUnreachable as error:
                failure = error
        raise failure

    def _not_before(self, address: Address) -> float:
        link = self._links.get(_Place(address))
        return -math.inf if link is None else link.not_before

    async def _connection(self, address: Address, use: Use = "data") -> Connection:
        if self._closed:
            raise ClientClosed("the client is closed")
        link = self._links.setdefault(_Place(address, use), _Link())

        async def work() -> None:
            # In place before it is open, so that closing the client closes it.
            link.connection = self._new_connection(address)
            await self._open(link.connection, link)

        if not link.is_open:
            await link.turns.take(lambda: link.is_open, work)
        assert link.connection is not None
        return link.connection

    def _new_connection(self, address: Address) -> Connection:
        if self._protection is None:
            return Connection(
                address,
                self._client_id,
                max_versions=self._max_versions,
                throttled=self._throttled,
                advertised=address not in self.bootstrap,
            )
        from ottla.client.cluster.secure import SecureConnection

        return SecureConnection(
            address,
            self._client_id,
            max_versions=self._max_versions,
            throttled=self._throttled,
            advertised=address not in self.bootstrap,
            protection=self._protection,
            random=self._random,
        )

    async def _open(self, connection: Connection, link: _Link) -> None:
        now = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, link.not_before - now()))
        if self._closed:
            raise ClientClosed("the client was closed before it connected")
        try:
            await connection.open(
                connect_timeout=self._connect_timeout,
                request_timeout=self.request_timeout,
            )
        except BrokerUnreachable:
            if self._closed:
                raise ClientClosed("the client was closed while it connected") from None
            link.failures += 1
            link.not_before = now() + RECONNECT.delay(link.failures, self._random())
            raise
        if self._closed:
            connection.abort()
            raise ClientClosed("the client was closed while it connected")
        link.failures = 0
        link.not_before = -math.inf


def _protection_of(security: Security) -> Protection | None:
    """What secure connections share; nothing of it is imported for plain ones."""
    if security.security_protocol == "PLAINTEXT":
        return None
    from ottla.client.cluster.protection import Protection

    return Protection(security)


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of calls made at the same time; if one fails the others are cancelled."""
    # No task group: before Python 3.13 one whose task fails while its caller is cancelled forgets
    # the cancellation, and a caller that retries after errors would never end.
    tasks = [asyncio.ensure_future(call) for call in calls]
    if not tasks:
        return []
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    except asyncio.CancelledError:
        await _cancel(tasks)
        raise
    failures = [task.exception() for task in done if not task.cancelled()]
    first = next((failure for failure in failures if failure is not None), None)
    if first is not None:
        await _cancel(tasks)
        raise first
    return [task.result() for task in tasks]


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
