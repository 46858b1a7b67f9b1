"""FindCoordinator (10): which broker coordinates a group, a transaction or a share-partition.

One key up to v3, a list of keys with a result each from v4. Key types: 0 group; 1 transaction; 2
share, from v6, with keys of the form group:topicId:partition.

Permissions: describe on the group or the transactional id; cluster action for share-partitions,
which only nodes ask for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.metadata.security.acls import Operation, Resource
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from ottla.broker.cluster import Cluster
    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.coordinators.transactions import TransactionService
    from ottla.broker.running.services import Lazy
    from ottla.broker.serving.context import RequestContext
    from ottla.broker.shares.persister import Persister

GROUP, TRANSACTION, SHARE = 0, 1, 2
FIRST_VERSION_WITH_SHARE = 6
FIRST_VERSION_WITH_LISTS = 4


async def find_coordinator(
    context: RequestContext,
    request: FindCoordinatorRequest,
    cluster: Cluster,
    groups: Lazy[GroupService],
    transactions: Lazy[TransactionService],
    persister: Lazy[Persister],
) -> FindCoordinatorResponse:
    async def find(key: str) -> Coordinator:
        try:
            node_id = await coordinator(key)
            for broker, endpoint in cluster.endpoints(context.peer.listener):
                if broker.node_id == node_id:
                    return Coordinator(
                        key, node_id, endpoint.host, endpoint.port, error_message=None
                    )
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except ApiError as error:
            return Coordinator(key, -1, "", -1, error.code, str(error))

    async def coordinator(key: str) -> int:
        if request.key_type == GROUP:
            context.require(Operation.DESCRIBE, Resource.GROUP, key)
            if not key:
                raise ApiError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
            return await (await groups.ready()).coordinator_of(key)
        if request.key_type == TRANSACTION:
            context.require(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, key)
            return await (await transactions.ready()).coordinator_of(key)
        if request.key_type == SHARE and context.version >= FIRST_VERSION_WITH_SHARE:
            context.require_cluster(Operation.CLUSTER_ACTION)
            return await _share_coordinator(await persister.ready(), key)
        text = f"There are no coordinators of type {request.key_type} in version {context.version}."
        raise ApiError(ErrorCode.INVALID_REQUEST, text)

    if context.version >= FIRST_VERSION_WITH_LISTS:
        return FindCoordinatorResponse(
            error_message=None,
            coordinators=await asyncio.gather(*map(find, request.coordinator_keys)),
        )
    found = await find(request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _share_coordinator(persister: Persister, key: str) -> int:
    from ottla.coordination.share_state.records import InvalidShareKey, ShareKey

    try:
        return await persister.leader_of(ShareKey.parse(key))
    except InvalidShareKey as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
