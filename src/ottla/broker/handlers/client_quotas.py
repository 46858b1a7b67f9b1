"""DescribeClientQuotas (48) and AlterClientQuotas (49).

- Describe: an entity matches if it has each requested component, and with `strict` no other. An
  invalid filter is 42.
- Alter: every entry is answered with its entity. An invalid entity, key or value is 42, and so is
  an entity that is named twice; the other entries are changed in one proposal, or only checked with
  `validate_only`. More than 10,000 entities are 44.
- Permissions on the cluster: describe configs to describe, alter configs to alter.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.broker.serving.context import Large
from ottla.broker.topics import decided_everywhere
from ottla.metadata.changes.security import SetClientQuotas
from ottla.metadata.errors import InvalidQuota
from ottla.metadata.security.acls import Operation
from ottla.metadata.security.quotas import (
    MAX_ENTITIES,
    EntityPart,
    FilterPart,
    check_key,
    check_value,
    checked_entity,
    checked_filter,
    entity_key,
)
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from ottla.wire.schema.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.cluster import Cluster
    from ottla.broker.serving.context import RequestContext
    from ottla.metadata.changes.apply import Change
    from ottla.metadata.image import MetadataImage


async def describe_client_quotas(
    context: RequestContext, request: DescribeClientQuotasRequest, cluster: Cluster
) -> DescribeClientQuotasResponse | Large[DescribeClientQuotasResponse]:
    try:
        context.require_cluster(Operation.DESCRIBE_CONFIGS)
        wanted = checked_filter(
            (FilterPart(*component) for component in request.components), strict=request.strict
        )
    except ApiError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=str(error), entries=None
        )
    except InvalidQuota as error:
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=str(error), entries=None
        )
    return Large(
        DescribeClientQuotasResponse(
            error_message=None,
            entries=[
                EntryData(
                    [EntityData(*part) for part in quota.entity],
                    [ValueData(*value) for value in sorted(quota.values.items())],
                )
                for _, quota in sorted(cluster.image.client_quotas.items())
                if wanted.matches(quota.entity)
            ],
        )
    )


async def alter_client_quotas(
    context: RequestContext, request: AlterClientQuotasRequest, cluster: Cluster
) -> AlterClientQuotasResponse:
    asked = [_asked(entry) for entry in request.entries]
    valid = [change for change in asked if isinstance(change, SetClientQuotas)]
    named = Counter(change.entity for change in valid)
    twice = ApiError(ErrorCode.INVALID_REQUEST, "The entity is in the request twice.")
    checked = [
        twice if isinstance(one, SetClientQuotas) and named[one.entity] > 1 else one
        for one in asked
    ]
    failure: ApiError | None = None
    try:
        context.require_cluster(Operation.ALTER_CONFIGS)
        await _set(
            [one for one in checked if isinstance(one, SetClientQuotas)],
            cluster,
            validate_only=request.validate_only,
        )
    except ApiError as error:
        failure = error
    return AlterClientQuotasResponse(
        entries=[
            _answer(entry, failure or one)
            for entry, one in zip(request.entries, checked, strict=True)
        ]
    )


def _asked(entry: RequestEntryData) -> SetClientQuotas | ApiError:
    try:
        entity = checked_entity(EntityPart(*part) for part in entry.entity)
        for op in entry.ops:
            if op.remove:
                check_key(entity, op.key)
            else:
                check_value(entity, op.key, op.value)
    except InvalidQuota as error:
        return ApiError(ErrorCode.INVALID_REQUEST, str(error))
    return SetClientQuotas(entity, {op.key: None if op.remove else op.value for op in entry.ops})


async def _set(
    changes: Sequence[SetClientQuotas], cluster: Cluster, *, validate_only: bool
) -> None:
    def decide(image: MetadataImage) -> list[Change]:
        new = {entity_key(change.entity) for change in changes} - image.client_quotas.keys()
        if len(image.client_quotas) + len(new) > MAX_ENTITIES:
            text = f"There are {len(image.client_quotas)} entities with quotas, the most that are."
            raise ApiError(ErrorCode.POLICY_VIOLATION, text)
        return list(changes)

    if changes:
        await decided_everywhere(cluster, decide, validate_only=validate_only)


def _answer(entry: RequestEntryData, outcome: SetClientQuotas | ApiError) -> ResponseEntryData:
    entity = [ResponseEntityData(*part) for part in entry.entity]
    if isinstance(outcome, ApiError):
        return ResponseEntryData(outcome.code, str(outcome), entity)
    return ResponseEntryData(error_message=None, entity=entity)
