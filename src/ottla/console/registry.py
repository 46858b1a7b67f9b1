"""The schema registry of a cluster: the one of the settings, or the one that the brokers name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client.admin.nodes import NodeCalls
from ottla.client.errors import ClientError
from ottla.console.decode.schemas_ import Schemas
from ottla.schemas.cache import SchemaCache
from ottla.schemas.model import SchemaError
from ottla.schemas.registry_client import SchemaRegistry

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.console.clusters import Cluster

LOOK_AGAIN: Final = 60.0
"""Seconds after which brokers that named no registry are asked again."""
TIMEOUT: Final = 3.0
"""Seconds that a page waits for the registry."""


class RegistryAccess:
    """Finds the registry when somebody first needs it."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._found: SchemaRegistry | None = None
        self._schemas: Schemas | None = None
        self._not_before = 0.0

    async def client(self) -> SchemaRegistry | None:
        """The registry; None if there is none."""
        now = self._clock.monotonic()
        if self._found is None and now >= self._not_before:
            self._not_before = now + LOOK_AGAIN
            settings = self._cluster.settings
            try:
                url = settings.registry or await self._named()
                if url:
                    self._found = SchemaRegistry(url, security=settings.security, timeout=TIMEOUT)
                    self._cluster.snapshot.note_registry()
            except (ClientError, SchemaError):
                return None  # brokers that do not tell have none for us
        return self._found

    async def schemas(self) -> Schemas | None:
        """What reads values by their schemas; None if there is no registry."""
        found = await self.client()
        if found is not None and self._schemas is None:
            self._schemas = Schemas(SchemaCache(found.blocking), self._clock.monotonic)
        return self._schemas

    async def _named(self) -> str | None:
        client = self._cluster.client
        if client is None:
            return None
        return await NodeCalls(client).registry_url()

    async def close(self) -> None:
        if self._found is not None:
            await self._found.close()
