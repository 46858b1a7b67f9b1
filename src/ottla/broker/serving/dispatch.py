"""From a frame to the handler that answers it, and from its result to bytes.

A handler is a plain function of context, request and the services it uses, which it names as its
further parameters (`running.services`); they are looked up once for each API, after a thread has
imported what the API takes. It returns the response; an `Ack` when that leaves with the next sync
of its logs; an awaitable of either when it has to wait, or of a `Large` response, which a worker
thread encodes; or None when the client wants no answer (Produce with acks=0). Unknown keys and
versions outside the served range raise, and the connection closes, as Kafka does; only ApiVersions
answers every version, so that clients can find common ground.
"""

from __future__ import annotations

import logging
import struct
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.broker.running.services import Lazy
from ottla.broker.serving.apis import SERVED, foresight_of, handler_of, load, services_of
from ottla.broker.serving.connections import Connections
from ottla.broker.serving.context import Ack, Large, RequestContext
from ottla.broker.serving.request_memory import RequestMemory
from ottla.broker.serving.turns import Turn
from ottla.wire.errors import MalformedMessage, UnknownApiKey, UnsupportedVersion, WireError
from ottla.wire.messages import (
    API_VERSIONS,
    codec,
    read_client_id,
    read_request,
    read_request_header,
    response_parts,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ottla.broker.running.services import Services
    from ottla.broker.serving.apis import Handler
    from ottla.broker.serving.connection import Connection
    from ottla.broker.serving.context import Parked, Peer
    from ottla.wire.messages import Codec
    from ottla.wire.writers import Parts

_HEADER = struct.Struct(">hhi")
_START = struct.Struct(">ii")  # API and version as one number
# APIs whose modules this process has imported: another broker of it need not ask a thread.
_LOADED: Final[set[int]] = set()

logger = logging.getLogger(__name__)


class _Route(NamedTuple):
    """Where requests of one API in one version go."""

    api_key: int
    version: int
    codec: Codec
    handler: Handler
    services: tuple[Any, ...]


class Dispatcher:
    """Routes requests of all connections, and knows which connections there are."""

    def __init__(self, services: Services, requests: dict[int, int]) -> None:
        self._services = services
        self._throttling = services.throttling
        self._handlers: dict[int, tuple[Handler, tuple[Any, ...]]] = {}
        self._routes: dict[int, _Route] = {}
        self._foresights: dict[int, tuple[Handler, tuple[Any, ...]]] = {}
        self.connections = Connections(services.settings)
        self.answers = services.answers
        self.memory = RequestMemory(services.settings.queued_max_request_bytes)
        self.requests = requests
        self.turn = Turn()

    def closed(self, connection: Connection) -> None:
        self.connections.closed(connection)
        self._services.connection_closed(connection.peer.connection_id)

    def identify(self, peer: Peer, principal: str) -> None:
        """Give the peer the rights of a principal, from now on."""
        peer.principal = principal
        peer.metered = None  # that was somebody else's
        services = self._services
        if services.authorizer is not None:
            from_node = peer.session is not None and peer.session.is_node
            peer.access = services.authorizer.access(principal, peer.host, from_node=from_node)

    def dispatch(
        self, frame: memoryview, peer: Peer, *, admitted: bool = False
    ) -> Parts | Awaitable[Parked] | Ack | None:
        """The parts of the answer, or an awaitable for it.

        A client that has to authenticate is asked first, before anything of the body is read.
        """
        if len(frame) < _START.size:
            raise MalformedMessage("a whole header", f"{len(frame)} bytes", "request header")
        if peer.session is not None and not admitted:
            refused = peer.session.admit(frame)
            if refused is not None:
                return refused
        api_and_version, correlation_id = _START.unpack_from(frame)
        route = self._routes.get(api_and_version)
        if route is None:
            return self._new_route(frame, peer)
        api_key, version, coded, handler, services = route
        self.requests[api_key] += 1
        client_id, body = read_client_id(frame, coded.flexible)
        request, _ = coded.read(frame, body)
        context = RequestContext(peer, api_key, version, client_id)
        throttling = self._throttling.made
        if throttling is None or not throttling.active:
            response = handler(context, request, *services)
        else:
            response = throttling.serve(context, request, handler, services)
        if isinstance(response, tuple):
            return coded.response(correlation_id, response)
        if isinstance(response, Ack):
            response.seal(coded, correlation_id)
            return response
        if response is None:
            return None
        return self._later(coded, correlation_id, response)

    def _new_route(self, frame: memoryview, peer: Peer) -> Parts | Awaitable[Parked] | Ack | None:
        """The first request of an API in a version."""
        api_key, version, correlation_id = _HEADER.unpack_from(frame)
        served = SERVED.get(api_key)
        if served is None:
            raise UnknownApiKey("an API this broker serves", api_key, "request header")
        if not served.min_version <= version <= served.max_version:
            self.requests[api_key] = self.requests.get(api_key, 0) + 1
            if api_key == API_VERSIONS:
                return self._unsupported_api_versions(correlation_id)
            expected = f"{served.min_version} to {served.max_version}"
            raise UnsupportedVersion(expected, version, f"API {api_key}")
        loaded = self._handlers.get(api_key)
        if loaded is None:
            if api_key not in _LOADED:
                return self._first(frame, peer, api_key)
            loaded = self._handler(api_key)
        self.requests.setdefault(api_key, 0)
        route = _Route(api_key, version, codec(api_key, version), *loaded)
        self._routes[_START.unpack_from(frame)[0]] = route
        return self.dispatch(frame, peer, admitted=True)

    async def _first(self, frame: memoryview, peer: Peer, api_key: int) -> Parked:
        """The first request of an API: load its modules while others are served."""
        await self._services.workers.run(partial(self._load, api_key))
        answer = self.dispatch(frame, peer, admitted=True)
        if answer is None or isinstance(answer, list | Ack):
            return answer
        return await answer

    def _handler(self, api_key: int) -> tuple[Handler, tuple[Any, ...]]:
        """That of an API whose modules are loaded, with its services."""
        handler = handler_of(api_key)
        services = self._services_of(handler)
        if self._services.audit is not None:
            from ottla.broker.access.audited import audited

            handler = audited(handler, api_key, self._services.audit)
        self._handlers[api_key] = handler, services
        foresight = foresight_of(api_key)
        if foresight is not None:
            self._foresights[api_key] = foresight, self._services_of(foresight)
        return handler, services

    def _services_of(self, handler: Handler) -> tuple[Any, ...]:
        return tuple(getattr(self._services, name) for name in services_of(handler))

    def foresee(self, frame: memoryview, peer: Peer) -> bool:
        """Announce a request that waits behind another; False if its API is not loaded.

        Errors of the request are reported when its turn has come.
        """
        if peer.session is not None and not peer.session.is_open:
            return False  # nothing of a stranger's requests is read
        api_key = int.from_bytes(frame[:2], "big")
        foresight = self._foresights.get(api_key)
        if foresight is None:
            return api_key in self._handlers
        with suppress(WireError):
            header = read_request_header(frame)
            request = read_request(header, frame)
            context = RequestContext(peer, header.api_key, header.api_version, header.client_id)
            handler, services = foresight
            handler(context, request, *services)
        return True

    def _load(self, api_key: int) -> None:
        load(api_key)
        names = services_of(handler_of(api_key))
        if "partitions" in names:
            import_module("ottla.broker.hosting.unwritten")  # for looks at unused partitions
        if not SERVED[api_key].chooses:
            for name in names:
                service = getattr(self._services, name)
                if isinstance(service, Lazy):
                    service.load()
        _LOADED.add(api_key)

    async def _later(self, coded: Codec, correlation_id: int, response: Awaitable[Any]) -> Parked:
        body = await response
        if body is None:
            return None
        if isinstance(body, Ack):
            body.seal(coded, correlation_id)
            return body
        if isinstance(body, Large):
            encode = partial(coded.response, correlation_id, body.response)
            return await self._services.workers.run(encode)
        return coded.response(correlation_id, body)

    def _unsupported_api_versions(self, correlation_id: int) -> Parts:
        """Version 0 with error 35: the one form every client can read."""
        from ottla.broker.handlers.api_versions import unsupported_version

        answer = unsupported_version(self._services.cluster)
        return response_parts(API_VERSIONS, 0, correlation_id, answer)
