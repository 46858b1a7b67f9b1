"""FindCoordinator (10): which broker coordinates a group, a transaction or a share-partition.

One key up to v3, a list of keys with an answer each from v4. Key types: 0 group; 1 transaction; 2
share, from v6, whose keys read group:topicId:partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from ottla.broker.serving.context import RequestContext

GROUP, TRANSACTION, SHARE = 0, 1, 2
FIRST_VERSION_WITH_SHARE = 6
FIRST_VERSION_WITH_LISTS = 4


def find_coordinator(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if context.version >= FIRST_VERSION_WITH_LISTS:
        return FindCoordinatorResponse(
            error_message=None,
            coordinators=[
                _find(context, request.key_type, key) for key in request.coordinator_keys
            ],
        )
    found = _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(context: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        node_id = _coordinator(context, key_type, key)
        for broker, endpoint in context.node.endpoints(context.peer.listener):
            if broker.node_id == node_id:
                return Coordinator(key, node_id, endpoint.host, endpoint.port, error_message=None)
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except ApiError as error:
        return Coordinator(key, -1, "", -1, error.code, str(error))


def _coordinator(context: RequestContext, key_type: int, key: str) -> int:
    if key_type == GROUP:
        if not key:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
        return context.node.groups.coordinator_of(key)
    if key_type == TRANSACTION:
        return context.node.transactions.coordinator_of(key)
    if key_type == SHARE and context.version >= FIRST_VERSION_WITH_SHARE:
        from ottla.coordination.share_state.records import InvalidShareKey, ShareKey

        try:
            return context.node.persister.leader_of(ShareKey.parse(key))
        except InvalidShareKey as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    text = f"There are no coordinators of type {key_type} in version {context.version}."
    raise ApiError(ErrorCode.INVALID_REQUEST, text)
