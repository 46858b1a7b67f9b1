"""What quotas do to requests: the shell around `quotas`.

- A request counts for its user and client id. The bytes of a produce request count in any case; a
  fetch gets no more than there is room for, or an empty answer; time in handlers counts when it
  has been spent, time in which a request is parked does not count.
- Partitions that are created or deleted count as they are changed (`RequestContext.charged`).
- Over a quota the answer leaves as usual and tells the time. Then its connection is muted for that
  time: nothing of it is read or served. The greatest of a request's times holds.
- When quotas change, muted connections go on at once; what they ask next is measured again.
- HTTP requests count towards `request_percentage`, too (`answer`). A client that is over it gets
  429 and the time to wait, instead of an answer.
- Nodes among themselves have no quotas. Nor has logging in, which has limits of its own (`lobby`).
"""

from __future__ import annotations

import math
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.broker.access.quotas import Quotas, Windows
from ottla.broker.serving.context import Ack, Large

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Mapping

    from ottla.broker.access.quotas import Client
    from ottla.broker.serving.apis import Handler
    from ottla.broker.serving.context import Peer, RequestContext
    from ottla.clock import Clock
    from ottla.http.messages import Answer, Request
    from ottla.http.routes import Handler as HttpHandler
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.security.quotas import ClientQuota
    from ottla.wire.schema.fetch import FetchResponse
    from ottla.wire.schema.share_fetch import ShareFetchResponse

PRODUCE: Final = 0
FETCHES: Final = frozenset({1, 78})  # Fetch, ShareFetch
LOGIN: Final = frozenset({17, 18, 36})  # SaslHandshake, ApiVersions, SaslAuthenticate
NODE_USER: Final = "__node"
USER_AT: Final = len("User:")  # in a principal
SOON: Final = (tuple, Ack)  # what a handler returns when it does not have to wait


class Throttling:
    """Counts the requests of a node's clients, and slows down those that are over a quota."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.active = False  # whether anybody has a quota
        self._monotonic = clock.monotonic
        self._quotas = Quotas(
            Windows(
                config.get_int("quota.window.num"), config.get_int("quota.window.size.seconds")
            ),
            Windows(
                config.get_int("controller.quota.window.num"),
                config.get_int("controller.quota.window.size.seconds"),
            ),
        )
        self._index = self._quotas.index
        self._muted: dict[int, Peer] = {}  # connections that were muted since the last change

    def adopt(self, quotas: Mapping[str, ClientQuota]) -> None:
        """Use these quotas from now on."""
        self._quotas.adopt(quotas)
        self._index = self._quotas.index
        self.active = self._quotas.active
        muted, self._muted = self._muted, {}
        for peer in muted.values():
            if peer.mute is not None:
                peer.mute(0.0)

    def connection_rate(self, address: str) -> float | None:
        """Connections a second that an address may open."""
        return self._quotas.connection_rate(address)

    def connection_closed(self, connection_id: int) -> None:
        self._muted.pop(connection_id, None)

    def serve(
        self, context: RequestContext, request: Any, handler: Handler, services: tuple[Any, ...]
    ) -> Any:
        """What the handler returns, with the time that the client must wait.

        Each line here is paid by each request of a node with quotas, reached or not.
        """
        client = context.peer.metered
        if (
            client is None
            or client.index is not self._index
            or client.client_id != context.client_id
        ):
            client = self._client(context)
        if context.api_key != PRODUCE or client.is_node:
            return self._serve_other(context, client, request, handler, services)
        began = perf_counter_ns()
        response = handler(context, request, *services)
        ended = perf_counter_ns()
        client.spent = spent = client.spent + ended - began
        size = client.bytes
        for topic in request.topic_data:
            for _, records in topic.partition_data:
                if records:
                    size += len(records)
        client.bytes = size
        if (
            ended < client.quiet_until
            and size < client.quiet_bytes
            and spent < client.quiet_spent
            and isinstance(response, SOON)
        ):
            return response
        return self._served(context, client, response, ended)

    def _serve_other(
        self,
        context: RequestContext,
        client: Client,
        request: Any,
        handler: Handler,
        services: tuple[Any, ...],
    ) -> Any:
        """All that produces nothing."""
        if client.is_node or context.api_key in LOGIN:
            return handler(context, request, *services)
        context.quota = client
        began = perf_counter_ns()
        response = handler(context, request, *services)
        ended = perf_counter_ns()
        client.spent += ended - began
        return self._served(context, client, response, ended)

    def _served(self, context: RequestContext, client: Client, response: Any, ended: int) -> Any:
        if response is None or isinstance(response, SOON):
            return self._done(context, client, response, ended)
        return self._later(context, client, response)

    async def answer(self, user: str, request: Request, handler: HttpHandler) -> Answer:
        """What an HTTP handler answers; `Refused` to a user that is over its request quota."""
        client = self._quotas.client(user, None, self._monotonic())
        if client.request is None:
            return await handler(request)
        wait = client.request.throttle(self._monotonic())
        if wait > 0:
            from ottla.http.messages import Refused

            seconds = str(math.ceil(wait))
            raise Refused(429, "over the quota request_percentage", ("Retry-After", seconds))
        timed = _Timed(handler(request))
        try:
            return cast("Answer", await timed)
        finally:
            client.request.record(timed.spent, self._monotonic())

    def _client(self, context: RequestContext) -> Client:
        peer = context.peer
        user, client_id = peer.principal[USER_AT:], context.client_id
        peer.metered = client = self._quotas.client(user, client_id, self._monotonic())
        client.is_node = user == NODE_USER
        return client

    async def _later(
        self, context: RequestContext, client: Client, response: Awaitable[Any]
    ) -> Any:
        timed = _Timed(response)
        body = await timed
        client.spent += timed.spent
        return self._done(context, client, body, perf_counter_ns())

    def _done(self, context: RequestContext, client: Client, response: Any, ended: int) -> Any:
        now = self._monotonic()
        if wait := client.tell(now, ended):
            context.throttle(wait)
        if context.api_key in FETCHES and client.fetch is not None:
            client.fetch.record(_fetched_bytes(response), now)
        seconds = context.throttled
        peer = context.peer
        if not seconds or peer.mute is None:
            return response
        peer.mute(seconds)
        self._muted[peer.connection_id] = peer
        return _told(response, math.ceil(seconds * 1000))


class _Timed:
    """Awaits another awaitable, and counts the time in which it runs."""

    __slots__ = ("_inner", "spent")

    def __init__(self, inner: Awaitable[Any]) -> None:
        self._inner = inner
        self.spent = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._inner.__await__()
        step: Any = steps.__next__
        while True:
            began = perf_counter_ns()
            try:
                waits_for = step()
            except StopIteration as done:
                return done.value
            finally:
                self.spent += perf_counter_ns() - began
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001  # cancelled, for example: its matter
                step = _Throw(steps, error)
            else:
                step = steps.__next__


class _Throw:
    """The next step of a coroutine is an exception."""

    __slots__ = ("_error", "_steps")

    def __init__(self, steps: Any, error: BaseException) -> None:
        self._steps = steps
        self._error = error

    def __call__(self) -> Any:
        return self._steps.throw(self._error)


def _fetched_bytes(response: FetchResponse | ShareFetchResponse) -> int:
    return sum(_size(data.records) for topic in response.responses for data in topic.partitions)


def _size(records: Any) -> int:
    if isinstance(records, list):
        return sum(map(len, records))
    return len(records or b"")


def _told(response: Any, milliseconds: int) -> Any:
    """The response with the time in it, where it has a field for that."""
    if isinstance(response, Ack):
        response.response = _told(response.response, milliseconds)
        return response
    if isinstance(response, Large):
        return Large(_told(response.response, milliseconds))
    if response is None or "throttle_time_ms" not in response._fields:
        return response
    return response._replace(throttle_time_ms=milliseconds)
