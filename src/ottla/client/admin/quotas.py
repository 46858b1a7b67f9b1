"""Admin calls on quotas: how much users, clients and addresses may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ottla.client import arguments
from ottla.client.admin.base import AdminBase
from ottla.client.admin.types import QuotaDescription
from ottla.client.errors import BadArgument, check
from ottla.wire.schema.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.wire.schema.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

QuotaEntity: TypeAlias = Literal["user", "client-id", "ip"]
ENTITIES: Final[tuple[QuotaEntity, ...]] = ("user", "client-id", "ip")
_EXACT: Final = 0
_DEFAULT: Final = 1


class QuotaCalls(AdminBase):
    """Alter and describe quotas."""

    async def alter_quotas(
        self,
        entity: Mapping[QuotaEntity, str | None],
        values: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set these quotas of an entity and leave the others alone; None takes a quota away.

        An entity is `{"user": "alice"}`, `{"client-id": "app"}`, both at once, or
        `{"ip": "10.0.0.1"}`; the name None stands for all that have no quota of their own.
        """
        parts = _entity(entity)
        whose = [RequestEntityData(kind, name) for kind, name in parts.items()]
        named = ", ".join(f"{kind} {name or '(default)'}" for kind, name in parts.items())
        changes = [
            OpData(arguments.text("values", key), 0.0, True)
            if value is None
            else OpData(
                arguments.text("values", key),
                arguments.real("values", value, 0.0, float("inf"), "a number"),
                False,
            )
            for key, value in arguments.mapping("values", values, "numbers by key").items()
        ]
        request = AlterClientQuotasRequest(
            [RequestEntryData(whose, changes)], arguments.flag("validate_only", validate_only)
        )

        async def attempt() -> None:
            answer: AlterClientQuotasResponse = await self._client.send(request, to="controller")
            for one in answer.entries:
                check(one.error_code, f"alter quotas of {named}", one.error_message)

        await self._client.retry(attempt)

    async def describe_quotas(
        self, entity: Mapping[QuotaEntity, str | None] | None = None, *, strict: bool = False
    ) -> list[QuotaDescription]:
        """The quotas of entities with these parts; None: all quotas.

        With `strict`, an entity has no other parts than these.
        """
        parts = {} if entity is None else _entity(entity)
        request = DescribeClientQuotasRequest(
            [
                ComponentData(kind, _DEFAULT if name is None else _EXACT, name)
                for kind, name in parts.items()
            ],
            arguments.flag("strict", strict),
        )

        async def attempt() -> list[QuotaDescription]:
            answer: DescribeClientQuotasResponse = await self._client.send(request, to="any")
            check(answer.error_code, "describe quotas", answer.error_message)
            found = [
                QuotaDescription(
                    {one.entity_type: one.entity_name for one in entry.entity},
                    {one.key: one.value for one in entry.values},
                )
                for entry in answer.entries or ()
            ]
            return sorted(found, key=lambda one: sorted(map(str, one.entity.items())))

        return await self._client.retry(attempt)


def _entity(given: Mapping[QuotaEntity, str | None]) -> dict[QuotaEntity, str | None]:
    found = dict(arguments.mapping("entity", given, "names by user, client-id or ip"))
    if not found:
        raise BadArgument("entity: expected user, client-id, both of them, or ip")
    for kind, name in found.items():
        arguments.choice("entity", kind, ENTITIES)
        arguments.optional_text("entity", name)
    return found
