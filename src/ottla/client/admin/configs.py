"""Admin calls on the configuration of topics, brokers and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client import arguments
from ottla.client.admin.base import AdminBase
from ottla.client.admin.types import ConfigEntry, ConfigSource
from ottla.client.arguments import INT32
from ottla.client.errors import BadArgument, check
from ottla.wire.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.client.admin.types import ConfigKind
    from ottla.client.cluster.cluster import Target

_RESOURCE_TYPES: Final = {"topic": 2, "broker": 4, "group": 32}
_SET: Final = 0
_DELETE: Final = 1


class ConfigCalls(AdminBase):
    """Describe and alter settings."""

    async def describe_configs(
        self,
        kind: ConfigKind,
        name: str,
        keys: Iterable[str] | None = None,
        *,
        documentation: bool = False,
    ) -> list[ConfigEntry]:
        """The settings of a topic, a broker (by its id) or a group, by name.

        With `documentation` each has the broker's text about it.
        """
        target = _served_by(kind, name)
        arguments.flag("documentation", documentation)
        asked = None if keys is None else arguments.texts("keys", keys)
        resource = DescribeConfigsResource(_RESOURCE_TYPES[kind], name, asked)

        async def attempt() -> list[ConfigEntry]:
            answer: DescribeConfigsResponse = await self._client.send(
                DescribeConfigsRequest([resource], include_documentation=documentation),
                to=target,
            )
            result = answer.results[0]
            what = f"describe the configuration of {kind} {name!r}"
            check(result.error_code, what, result.error_message)
            return [
                ConfigEntry(
                    one.name,
                    one.value,
                    _source(one.config_source),
                    one.read_only,
                    one.is_sensitive,
                    one.documentation or "",
                )
                for one in sorted(result.configs, key=lambda one: one.name)
            ]

        return await self._client.retry(attempt)

    async def alter_configs(
        self,
        kind: ConfigKind,
        name: str,
        configs: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set these keys and leave the others alone; None takes a key back to its default.

        >>> from ottla import Admin
        >>> async with Admin("127.0.0.1:9092") as admin:
        ...     await admin.alter_configs("topic", "orders", {"retention.ms": "86400000"})
        ...     [found] = await admin.describe_configs("topic", "orders", ["retention.ms"])
        ...     print(found.value, found.is_default)
        86400000 False
        """
        target = _served_by(kind, name)
        arguments.flag("validate_only", validate_only)
        changes = [
            AlterableConfig(key, _DELETE if value is None else _SET, value)
            for key, value in arguments.settings("configs", configs, nullable=True).items()
        ]
        request = IncrementalAlterConfigsRequest(
            [AlterConfigsResource(_RESOURCE_TYPES[kind], name, changes)], validate_only
        )

        async def attempt() -> None:
            answer: IncrementalAlterConfigsResponse = await self._client.send(request, to=target)
            result = answer.responses[0]
            what = f"alter the configuration of {kind} {name!r}"
            check(result.error_code, what, result.error_message)

        await self._client.retry(attempt)


def _served_by(kind: ConfigKind, name: str) -> Target:
    """Ask a broker for its own configuration; any broker has all the others."""
    arguments.choice("kind", kind, _RESOURCE_TYPES)
    if kind != "broker" or name != "":  # which stands for all brokers
        arguments.text("name", name)
    if kind == "broker" and name:
        if not (name.isascii() and name.isdigit() and int(name) <= INT32):
            raise BadArgument(f"a broker is named by its id, a number, not {name!r}")
        return int(name)
    return "any"


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN
