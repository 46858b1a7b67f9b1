"""The requests that change the cluster, and what the audit log says of each.

`ADMIN` has a function for each API: of request and response it makes pairs of a resource and an
error code. Only names are told, of settings and users as well; never a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.broker.serving.context import Ack, Large
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import API_NAMES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from ottla.broker.access.audit import Audit
    from ottla.broker.serving.apis import Handler
    from ottla.broker.serving.context import RequestContext

    Change = tuple[str, int]
    Told = Callable[[Any, Any], Iterable[Change]]

MAX_CHANGES: Final = 1_000
"""Lines for one request; of the others there is one with their number."""
_KINDS: Final = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
_ACL_KINDS: Final = {
    2: "topic",
    3: "group",
    4: "cluster",
    5: "transactional-id",
    6: "token",
    7: "user",
}


def _topics(_: Any, response: Any) -> Iterator[Change]:
    for topic in response.topics:
        yield f"topic:{topic.name}", topic.error_code


def _deleted_topics(_: Any, response: Any) -> Iterator[Change]:
    for topic in response.responses:
        yield f"topic:{topic.name or topic.topic_id.hex()}", topic.error_code


def _partitions(request: Any, response: Any) -> Iterator[Change]:
    counts = {topic.name: topic.count_ for topic in request.topics}
    for topic in response.results:
        yield f"topic:{topic.name} partitions {counts.get(topic.name)}", topic.error_code


def _records(request: Any, response: Any) -> Iterator[Change]:
    before = {
        (topic.name, each.partition_index): each.offset
        for topic in request.topics
        for each in topic.partitions
    }
    for topic in response.topics:
        for each in topic.partitions:
            offset = before.get((topic.name, each.partition_index))
            yield f"topic:{topic.name}-{each.partition_index} before {offset}", each.error_code


def _configs(request: Any, response: Any) -> Iterator[Change]:
    """The keys, without their values."""
    keys = {
        (each.resource_type, each.resource_name): ",".join(one.name for one in each.configs)
        for each in request.resources
    }
    for each in response.responses:
        kind = _KINDS.get(each.resource_type, str(each.resource_type))
        named = keys.get((each.resource_type, each.resource_name), "")
        yield f"{kind}:{each.resource_name} configs {named}", each.error_code


def _acl(kind: int, name: str | None, principal: str | None, operation: int) -> str:
    return f"acl {_ACL_KINDS.get(kind, kind)}:{name} {principal} operation {operation}"


def _new_acls(request: Any, response: Any) -> Iterator[Change]:
    for acl, result in zip(request.creations, response.results, strict=False):
        told = _acl(acl.resource_type, acl.resource_name, acl.principal, acl.operation)
        yield told, result.error_code


def _deleted_acls(_: Any, response: Any) -> Iterator[Change]:
    for result in response.filter_results:
        if result.error_code:
            yield "acl", result.error_code
        for acl in result.matching_acls:
            told = _acl(acl.resource_type, acl.resource_name, acl.principal, acl.operation)
            yield told, acl.error_code


def _quotas(request: Any, response: Any) -> Iterator[Change]:
    for entry, result in zip(request.entries, response.entries, strict=False):
        entity = ",".join(f"{one.entity_type}={one.entity_name}" for one in entry.entity)
        yield f"quota {entity} {','.join(op.key for op in entry.ops)}", result.error_code


def _users(_: Any, response: Any) -> Iterator[Change]:
    for result in response.results:
        yield f"user:{result.user}", result.error_code


def _groups(_: Any, response: Any) -> Iterator[Change]:
    for result in response.results:
        yield f"group:{result.group_id}", result.error_code


def _offsets(request: Any, response: Any) -> Iterator[Change]:
    if response.error_code:
        yield f"group:{request.group_id} offsets", response.error_code
    topics: Sequence[Any] = response.topics if hasattr(response, "topics") else response.responses
    for topic in topics:
        name = getattr(topic, "name", "") or getattr(topic, "topic_name", "")
        told = f"group:{request.group_id} offsets of topic:{name}"
        for each in getattr(topic, "partitions", None) or (topic,):
            index = getattr(each, "partition_index", None)
            yield told if index is None else f"{told}-{index}", each.error_code


def _leaders(_: Any, response: Any) -> Iterator[Change]:
    if response.error_code:
        yield "leaders", response.error_code
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            yield f"topic:{topic.topic}-{each.partition_id} leader", each.error_code


def _replicas(_: Any, response: Any) -> Iterator[Change]:
    if response.error_code:
        yield "replicas", response.error_code
    for topic in response.responses:
        for each in topic.partitions:
            yield f"topic:{topic.name}-{each.partition_index} replicas", each.error_code


def _broker(request: Any, response: Any) -> Iterator[Change]:
    yield f"broker:{request.broker_id}", response.error_code


ADMIN: Final[dict[int, Told]] = {
    19: _topics,
    20: _deleted_topics,
    21: _records,
    30: _new_acls,
    31: _deleted_acls,
    33: _configs,
    37: _partitions,
    42: _groups,
    43: _leaders,
    44: _configs,
    45: _replicas,
    47: _offsets,
    49: _quotas,
    51: _users,
    64: _broker,
    91: _offsets,
    92: _offsets,
}


def audited(handler: Handler, api_key: int, audit: Audit) -> Handler:
    """A handler that tells the audit log what became of its requests."""
    told = ADMIN.get(api_key)
    if told is None and not audit.tells_all:
        return handler

    def note(context: RequestContext, request: Any, response: Any) -> None:
        if isinstance(response, Large):
            response = response.response
        if told is None or response is None or isinstance(response, Ack):
            audit.allowed(context.peer, context.client_id, API_NAMES[api_key])
            return
        if getattr(request, "validate_only", False):
            return
        changes = list(told(request, response))
        lines = [
            (resource, "done" if code == 0 else ErrorCode(code).name)
            for resource, code in changes[:MAX_CHANGES]
        ]
        if len(changes) > MAX_CHANGES:
            lines.append((f"{len(changes) - MAX_CHANGES} further ones", "counted"))
        for resource, outcome in lines:
            audit.changed(context.peer, context.client_id, API_NAMES[api_key], resource, outcome)

    async def later(context: RequestContext, request: Any, response: Awaitable[Any]) -> Any:
        body = await response
        note(context, request, body)
        return body

    def handle(context: RequestContext, request: Any, *services: Any) -> Any:
        response = handler(context, request, *services)
        if isinstance(response, tuple | Ack) or response is None:
            note(context, request, response)
            return response
        return later(context, request, response)

    return handle
