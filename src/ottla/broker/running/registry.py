"""The schema registry on its listener: routes, who asks, and the process that parses schemas.

Of several nodes the leader of the registry's topic decides, and answers what is read; the others
pass requests on to it.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from ottla import __version__
from ottla.broker.access.certificates import tls_settings
from ottla.broker.access.http_callers import HttpCallers
from ottla.broker.access.listeners import endpoint_url
from ottla.broker.access.permissions import ROUTES
from ottla.http.messages import Limits
from ottla.http.server import HttpServer
from ottla.registry.errors import Code, RegistryError
from ottla.registry.forwarding import Forwarder
from ottla.registry.routes import About, refusal, routes_of
from ottla.registry.service import Registry
from ottla.schemas.parsing_child import ParsingChild
from ottla.security.contexts import client_context

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket

    from ottla.broker.running.node import Node
    from ottla.http.messages import Answer, Request


class ServedRegistry:
    """Of one node, whose settings have a listener for it."""

    def __init__(self, node: Node) -> None:
        """Reads certificates."""
        listener = node.settings.registry_listener
        assert listener is not None
        services = node.services
        self._cluster = node.cluster
        self._listener = listener.name
        self._coordinator = coordinator = services.registry()
        self._forwarder: Forwarder | None = None
        if node.leadership is not None:
            trust = None
            if listener.has_tls:
                trust = client_context(tls_settings(node.config.listener(listener.name)))
            self._forwarder = Forwarder(trust)
        self._parser = ParsingChild()
        self.registry = Registry(coordinator.ask, self._parser, coordinator.level)
        door = services.door if node.settings.registry_asks else None
        callers = HttpCallers(listener.name, door, services.authorizer, services.audit)
        about = About(node.image.cluster_id, __version__)
        routes = routes_of(self.registry, callers.identify, about, self._pass_on)
        unknown = set(routes.names) - ROUTES.keys()
        if unknown:
            raise ValueError(f"routes without a row in the permissions: {unknown}")
        tls = None
        if listener.has_tls:
            assert services.certificates is not None
            tls = partial(services.certificates.context, listener.name)
        limits = Limits(body_bytes=node.config.get_int("ottla.registry.max.body.bytes"))
        self._server = HttpServer(routes, limits, tls, refusal, self._count)
        self.answers: Counter[int] = Counter()
        """Requests by the status of their answer."""

    def _count(self, answer: Answer) -> None:
        self.answers[answer.status] += 1

    async def start(self, sockets: Sequence[socket]) -> None:
        await self._server.start(sockets)

    async def _pass_on(self, request: Request) -> Answer | None:
        leader = self._coordinator.leader
        if leader in (None, self._cluster.node_id):
            return None
        broker = self._cluster.image.brokers.get(leader)
        endpoint = None if broker is None or broker.fenced else broker.listeners.get(self._listener)
        if endpoint is None or self._forwarder is None:
            raise RegistryError(Code.NO_LEADER, "no node leads the registry's topic at the moment")
        return await self._forwarder.forward(request, endpoint_url(endpoint))

    async def close(self) -> None:
        await self._server.close()
        if self._forwarder is not None:
            self._forwarder.close()
        await self._parser.close()
