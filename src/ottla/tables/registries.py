"""The schema registry of a cluster, as the worker and readers of tables use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.schemas.cache import SchemaCache
from ottla.schemas.model import FRAMED
from ottla.schemas.registry_client import BlockingRegistry
from ottla.tables.errors import BadTableSetting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.client.security import Security
    from ottla.tables.settings import TopicSettings


def needs_registry(settings: TopicSettings) -> bool:
    """Whether the records of a topic cannot be read without a registry."""
    has_subject = settings.value_format in ("avro", "protobuf") and not settings.value_schema
    is_framed = settings.value_format in FRAMED or settings.key_format == "registry"
    return is_framed or has_subject


async def registry_url(given: str | None, ask: Callable[[], Awaitable[str | None]]) -> str:
    """Where the registry is: as given, else as the brokers say."""
    url = given or await ask()
    if url is None:
        raise BadTableSetting(
            "the brokers do not say where the schema registry is: start them with --registry, or "
            "set ottla.table.registry.url of the worker"
        )
    return url


def schemas_at(url: str, security: Security) -> SchemaCache:
    """The schemas of a registry; user, password and CA are those of the brokers."""
    return SchemaCache(BlockingRegistry(url, security=security))
