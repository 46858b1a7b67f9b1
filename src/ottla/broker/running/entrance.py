"""The entrance of a node: who may come in by which listener, and what is written down about it.

It opens the audit log, loads certificates, and puts a guard on each listener that asks who comes
in; on all of them if new connections are limited. A node with PLAINTEXT listeners and no limit has
none of it, and loads nothing for it. What it opens stands in `services`: `audit`, `certificates`
and `door`.

- `open` before the sockets are bound, `connection` for each one that is accepted.
- A limit that is set while the broker runs puts guards on the listeners that have none.
- SIGHUP (`look_again`): certificates may have been replaced, and the audit file renamed.
- `stop_looking` ends what looks at files and limits; `close` ends the rest when nothing is served.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.access.listeners import PLAINTEXT, has_authorizer, unused_security
from ottla.broker.serving.connection import Connection
from ottla.broker.serving.context import Peer
from ottla.metadata.config.types import INT_MAX
from ottla.metadata.errors import InvalidConfig
from ottla.metadata.names import OWN_TOPICS
from ottla.metadata.security.acls import CLUSTER_NAME, Operation, Resource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.access.authorizer import Authorizer
    from ottla.broker.access.certificates import Certificates
    from ottla.broker.access.guard import Guard
    from ottla.broker.access.listeners import Listener
    from ottla.broker.running.services import Services
    from ottla.broker.serving.dispatch import Dispatcher
    from ottla.metadata.changes.apply import Change
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import MetadataImage
    from ottla.metadata.metadata import Metadata

logger = logging.getLogger(__name__)


class Entrance:
    """Of one node."""

    def __init__(
        self, config: BrokerConfig, services: Services, dispatcher: Dispatcher, metadata: Metadata
    ) -> None:
        self._config = config
        self._services = services
        self._settings = services.settings
        self._dispatcher = dispatcher
        self._metadata = metadata
        self.guards: dict[str, Guard] = {}
        """By the name of the listener; those without one let everybody in."""
        self._reloading: asyncio.Future[None] | None = None
        self._guarding: asyncio.Task[None] | None = None

    def warn_of_unused_security(self) -> None:
        """Users and ACLs that the configuration makes no use of."""
        image = self._metadata.image
        if image.scram or image.acls:
            warning = unused_security(self._config, self._settings.listeners)
            if warning is not None:
                logger.warning("%s: %s", self._services.data.path, warning)

    async def open(self) -> None:
        """Guard the listeners that ask who comes in, and all if new connections are limited."""
        services = self._services
        guarded = [
            one
            for one in self._settings.listeners
            if one.name not in self.guards
            and (one.protocol != PLAINTEXT or self._limits_connections())
        ]
        if services.audit is None:
            await self._open_audit(guarded)
        if services.certificates is None:
            http = self._settings.metrics_listener, self._settings.registry_listener
            listeners = [*self._settings.listeners, *(one for one in http if one is not None)]
            if guarded or self._settings.registry_asks or any(one.has_tls for one in listeners):
                services.certificates = await services.workers.run(
                    partial(self._certificates, listeners)
                )
        if not guarded and not self._settings.registry_asks:
            return
        if services.door is None:
            assert services.audit is not None
            assert services.certificates is not None
            await services.workers.run(partial(import_module, "ottla.broker.access.door"))
            from ottla.broker.access.door import Door

            services.door = await Door.open(
                self._config,
                self._settings,
                self._dispatcher.connections,
                self._metadata,
                services,
                services.certificates,
                services.audit,
            )
        for listener in guarded:
            self.guards[listener.name] = await services.door.guard(self._config, listener)

    async def check_own_rights(self, *, talks_to_nodes: bool) -> None:
        """A node that other nodes would refuse, or whose tier would be, does not start."""
        authorizer, door = self._services.authorizer, self._services.door
        if not talks_to_nodes and self._services.tiering.made is None:
            return
        if door is not None:
            await door.check_own_trust()
        if authorizer is None:
            return
        user = "ANONYMOUS" if door is None else await door.node_principal()
        access = authorizer.access(f"User:{user}", "127.0.0.1", from_node=True)
        if not access.may(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            raise InvalidConfig(
                f"User:{user}, as which this node logs in to others and its tier to itself, or an "
                "inter.broker.listener.name with SASL",
                self._config.get_str("super.users") or "nobody",
                "super.users",
            )

    def connection(self, listener: Listener) -> Connection:
        """For a socket that was accepted."""
        peer = Peer("", listener.name)
        guard = self.guards.get(listener.name)
        if guard is not None:
            return guard.connection(self._dispatcher, peer)
        return Connection(self._dispatcher, peer, self._settings.max_request_bytes)

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        """Guard listeners from now on if a limit was set while the broker runs."""
        changed = (
            before.client_quotas is not after.client_quotas
            or before.broker_configs is not after.broker_configs
        )
        unguarded = len(self.guards) < len(self._settings.listeners)
        if changed and unguarded and self._limits_connections() and self._guarding is None:
            self._guarding = asyncio.get_running_loop().create_task(self._guard_later())

    def look_again(self) -> None:
        """SIGHUP: certificates may have been replaced, and the audit file renamed."""
        if self._services.certificates is not None:
            self._reloading = asyncio.ensure_future(self._services.certificates.reload())
        if self._services.audit is not None:
            self._services.audit.reopen()

    async def stop_looking(self) -> None:
        """At files of certificates, and at limits that were set: their threads end soon."""
        tasks = [task for task in (self._reloading, self._guarding) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        if self._services.door is not None:
            self._services.door.close()
        if self._services.audit is not None:
            await self._services.workers.run(self._services.audit.close)

    # -- opening it -------------------------------------------------------------------------------

    def _limits_connections(self) -> bool:
        """Whether there is a limit of new connections in a second, for anybody."""
        settings = self._settings
        quotas = self._metadata.image.client_quotas
        if settings.connection_rate < INT_MAX or settings.listener_rates:
            return True
        if not quotas:
            return False
        from ottla.metadata.security.quotas import IP

        return any(part.kind == IP for quota in quotas.values() for part in quota.entity)

    async def _guard_later(self) -> None:
        try:
            await self.open()
        except Exception:
            logger.exception("new connections cannot be limited")
        finally:
            self._guarding = None

    def _certificates(self, listeners: Sequence[Listener]) -> Certificates:
        from ottla.broker.access.certificates import Certificates

        services = self._services
        return Certificates(self._config, listeners, services.workers, services.clock)

    async def _open_audit(self, guarded: Sequence[Listener]) -> None:
        file = self._config.parsed("ottla.audit.file")
        asks = bool(guarded) or self._settings.registry_asks
        if not asks and file is None and not has_authorizer(self._config):
            return
        from ottla.broker.access.audit import Audit, check_file

        services = self._services
        path = None if file is None else Path(str(file))
        if path is not None:
            await services.workers.run(partial(check_file, path))
        services.audit = Audit(
            services.clock,
            self._config.node_id,
            file=path,
            allowed=self._config.get_str("ottla.audit.allowed"),
        )
        if services.authorizer is not None:
            services.authorizer.report = services.audit.denied


def authorizer_of(config: BrokerConfig, image: MetadataImage) -> Authorizer | None:
    """None if the configuration names none: everybody may do everything."""
    if not has_authorizer(config):
        return None
    from ottla.broker.access.authorizer import Authorizer, parsed_super_users

    return Authorizer(
        image.acls,
        super_users=parsed_super_users(config.get_str("super.users")),
        everyone=config.get_bool("allow.everyone.if.no.acl.found"),
        own_topics=OWN_TOPICS
        if config.parsed("ottla.registry.listener") is None
        else OWN_TOPICS | {config.get_str("ottla.registry.topic")},
        topic_configs=image.topic_configs,
    )


def first_users_of(config: BrokerConfig, image: MetadataImage) -> list[Change]:
    """Those of ottla.bootstrap.user.file, for a cluster without any user. Reads a file."""
    path = config.parsed("ottla.bootstrap.user.file")
    if path is None or image.scram:
        return []
    from ottla.metadata.security.first_users import read_users

    return list(read_users(str(path)))
