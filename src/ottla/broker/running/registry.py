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
from ottla.broker.access.http_admission import CONNECTIONS, AdmissionLimits, HttpAdmission
from ottla.broker.access.http_callers import HttpCallers, Proofs
from ottla.broker.access.listeners import endpoint_url
from ottla.broker.access.permissions import ROUTES
from ottla.http.messages import Limits
from ottla.http.server import HttpServer
from ottla.metadata.config.types import INT_MAX
from ottla.registry.errors import Code, RegistryError
from ottla.registry.forwarding import Forwarder
from ottla.registry.routes import About, refusal, routes_of
from ottla.registry.service import Registry
from ottla.schemas.parsing_child import ParsingChild
from ottla.security.contexts import client_context

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket

    from ottla.broker.access.http_callers import Visitor
    from ottla.broker.running.node import Node
    from ottla.broker.running.settings import Settings
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
        self._services = services
        door, proofs = None, Proofs()
        if node.settings.registry_asks:
            door = services.door
            shown = services.certificates if listener.has_tls else None
            proofs = Proofs.of(node.config, listener.name, shown, self._services.clock)
        callers = HttpCallers(
            listener.name,
            door,
            proofs,
            services.authorizer,
            services.audit,
            lambda: services.throttling.made,
        )
        about = About(node.image.cluster_id, __version__)
        routes = routes_of(self.registry, callers.identify, about, self._pass_on)
        unknown = set(routes.names) - ROUTES.keys()
        if unknown:
            raise ValueError(f"routes without a row in the permissions: {unknown}")
        tls = None
        if listener.has_tls:
            assert services.certificates is not None
            tls = partial(services.certificates.context, listener.name)
        limits = Limits(
            body_bytes=node.config.get_int("ottla.registry.max.body.bytes"),
            connections=INT_MAX,  # `admission` has the limit, which may change
        )
        self.admission = HttpAdmission(
            listener.name,
            partial(_admission_limits, node.settings),
            self._address_rate,
            services.clock.monotonic,
            node.dispatcher.connections.tell,
        )
        self._server = HttpServer(routes, limits, tls, refusal, self._count, self.admission)
        self.answers: Counter[int] = Counter()
        """Requests by the status of their answer."""

    def _count(self, answer: Answer) -> None:
        self.answers[answer.status] += 1

    def _wall(self) -> float:
        return self._services.clock.wall_ms() / 1000

    async def start(self, sockets: Sequence[socket]) -> None:
        await self._server.start(sockets)

    def _address_rate(self, address: str) -> float | None:
        throttling = self._services.throttling.made
        return None if throttling is None else throttling.connection_rate(address)

    async def _pass_on(self, request: Request, caller: Visitor) -> Answer | None:
        leader = self._coordinator.leader
        if leader in (None, self._cluster.node_id):
            return None
        broker = self._cluster.image.brokers.get(leader)
        endpoint = None if broker is None or broker.fenced else broker.listeners.get(self._listener)
        if endpoint is None or self._forwarder is None:
            raise RegistryError(Code.NO_LEADER, "no node leads the registry's topic at the moment")
        vouching = partial(caller.vouching, request, self._wall())
        return await self._forwarder.forward(request, endpoint_url(endpoint), vouching)

    async def close(self) -> None:
        await self._server.close()
        if self._forwarder is not None:
            self._forwarder.close()
        await self._parser.close()


def _admission_limits(settings: Settings) -> AdmissionLimits:
    most = settings.registry_connections
    return AdmissionLimits(
        CONNECTIONS if most is None else most,
        settings.registry_rate,
        settings.max_connections_per_ip,
        settings.address_limits,
    )
