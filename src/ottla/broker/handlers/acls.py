"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31).

- Every creation and every filter is answered, in order: librdkafka aborts on a short list.
- Invalid creations are refused one by one with 42; the others are made in one proposal. Creating an
  existing ACL succeeds and changes nothing.
- All filters of a deletion see the ACLs as they were before the request; one proposal removes the
  matches.
- A request with more than 10,000 entries, a creation beyond 100,000 ACLs in all, and filters that
  would have to compare too many ACLs are refused with 44.
- Without an authorizer every request is refused with 54, because ACLs would protect nothing.
- Permissions on the cluster: describe to describe, alter to create and delete.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.errors import ApiError
from ottla.broker.serving.context import Large
from ottla.broker.topics import decided_everywhere
from ottla.metadata.changes.security import AddAcls, RemoveAcls
from ottla.metadata.errors import InvalidAcl
from ottla.metadata.security.acls import (
    MATCH,
    MAX_ACLS,
    MAX_ACLS_OF_A_REQUEST,
    Acl,
    AclFilter,
    Operation,
    checked_acl,
    checked_filter,
)
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.wire.schema.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.wire.schema.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.broker.access.authorizer import Authorizer
    from ottla.broker.cluster import Cluster
    from ottla.broker.serving.context import RequestContext
    from ottla.broker.workers import Workers
    from ottla.metadata.changes.apply import Change
    from ottla.metadata.image import MetadataImage

MAX_COMPARISONS: Final = 2_000_000
"""Most comparisons of filters with ACLs in one request: a second or two; other changes wait."""


async def describe_acls(
    context: RequestContext,
    request: DescribeAclsRequest,
    cluster: Cluster,
    authorizer: Authorizer | None,
    workers: Workers,
) -> DescribeAclsResponse | Large[DescribeAclsResponse]:
    try:
        context.require_cluster(Operation.DESCRIBE)
        _check_enabled(authorizer)
        wanted = _filter(request)
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=str(error))
    resources = await workers.run(partial(_described, cluster.image.acls, wanted))
    return Large(DescribeAclsResponse(error_message=None, resources=resources))


def _described(acls: Iterable[Acl], wanted: AclFilter) -> list[DescribeAclsResource]:
    """Runs in a worker thread, because there may be many."""
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in sorted(acl for acl in acls if wanted.matches(acl)):
        row = AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
        found.setdefault((acl.resource, acl.name, acl.pattern), []).append(row)
    return [DescribeAclsResource(*pattern, rows) for pattern, rows in found.items()]


async def create_acls(
    context: RequestContext,
    request: CreateAclsRequest,
    cluster: Cluster,
    authorizer: Authorizer | None,
) -> CreateAclsResponse:
    try:
        context.require_cluster(Operation.ALTER)
        _check_enabled(authorizer)
        _check_size(request.creations)
        asked = [_created(creation) for creation in request.creations]
        await _add([acl for acl in asked if isinstance(acl, Acl)], cluster)
    except ApiError as error:
        result = AclCreationResult(error.code, str(error))
        return CreateAclsResponse(results=[result] * len(request.creations))
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_message=None)
            if isinstance(acl, Acl)
            else AclCreationResult(ErrorCode.INVALID_REQUEST, str(acl))
            for acl in asked
        ]
    )


def _created(creation: AclCreation) -> Acl | InvalidAcl:
    try:
        return checked_acl(
            creation.resource_type,
            creation.resource_pattern_type,
            creation.resource_name,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
    except InvalidAcl as error:
        return error


async def _add(acls: Sequence[Acl], cluster: Cluster) -> None:
    def decide(image: MetadataImage) -> list[Change]:
        new = tuple(acl for acl in dict.fromkeys(acls) if acl not in image.acls)
        if len(image.acls) + len(new) > MAX_ACLS:
            text = f"There are {len(image.acls)} ACLs; {len(new)} more would exceed {MAX_ACLS}."
            raise ApiError(ErrorCode.POLICY_VIOLATION, text)
        return [AddAcls(new)] if new else []

    if acls:
        await decided_everywhere(cluster, decide)


async def delete_acls(
    context: RequestContext,
    request: DeleteAclsRequest,
    cluster: Cluster,
    authorizer: Authorizer | None,
) -> DeleteAclsResponse:
    try:
        context.require_cluster(Operation.ALTER)
        _check_enabled(authorizer)
        _check_size(request.filters)
        filters = [_deleted(asked) for asked in request.filters]
        valid = [wanted for wanted in filters if isinstance(wanted, AclFilter)]
        matched = iter(await _remove(valid, cluster))
    except ApiError as error:
        result = DeleteAclsFilterResult(error.code, str(error))
        return DeleteAclsResponse(filter_results=[result] * len(request.filters))
    return DeleteAclsResponse(
        filter_results=[
            _removed(next(matched))
            if isinstance(wanted, AclFilter)
            else DeleteAclsFilterResult(wanted.code, str(wanted))
            for wanted in filters
        ]
    )


def _deleted(asked: DeleteAclsFilter) -> AclFilter | ApiError:
    try:
        return _filter(asked)
    except ApiError as error:
        return error


def _removed(acls: Sequence[Acl]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                ErrorCode.NONE,
                None,
                acl.resource,
                acl.name,
                acl.pattern,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission,
            )
            for acl in acls
        ],
    )


async def _remove(filters: Sequence[AclFilter], cluster: Cluster) -> list[list[Acl]]:
    """The ACLs that each filter matches."""
    matched: list[list[Acl]] = []

    def decide(image: MetadataImage) -> list[Change]:
        matched[:] = _matched(filters, image.acls)
        gone = tuple({acl for acls in matched for acl in acls})
        return [RemoveAcls(gone)] if gone else []

    await decided_everywhere(cluster, decide)
    return matched


def _matched(filters: Sequence[AclFilter], acls: frozenset[Acl]) -> list[list[Acl]]:
    """Looked up by name if the filter has one: a request may have 10,000 such filters."""
    by_name: dict[str, list[Acl]] = {}
    for acl in sorted(acls):
        by_name.setdefault(acl.name, []).append(acl)
    everything = [acl for some in by_name.values() for acl in some]

    def candidates(wanted: AclFilter) -> list[Acl]:
        if wanted.name is None or wanted.pattern == MATCH:
            return everything
        return by_name.get(wanted.name, [])

    if sum(len(candidates(wanted)) for wanted in filters) > MAX_COMPARISONS:
        text = f"{len(filters)} filters of {len(acls)} ACLs are too many at once."
        raise ApiError(ErrorCode.POLICY_VIOLATION, text)
    return [[acl for acl in candidates(wanted) if wanted.matches(acl)] for wanted in filters]


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    try:
        return checked_filter(
            asked.resource_type_filter,
            asked.pattern_type_filter,
            asked.resource_name_filter,
            asked.principal_filter,
            asked.host_filter,
            asked.operation,
            asked.permission_type,
        )
    except InvalidAcl as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _check_enabled(authorizer: Authorizer | None) -> None:
    if authorizer is None:
        text = "No authorizer is configured; set authorizer.class.name=standard."
        raise ApiError(ErrorCode.SECURITY_DISABLED, text)


def _check_size(entries: Sequence[object]) -> None:
    if len(entries) > MAX_ACLS_OF_A_REQUEST:
        text = f"A request has at most {MAX_ACLS_OF_A_REQUEST} entries, not {len(entries)}."
        raise ApiError(ErrorCode.POLICY_VIOLATION, text)
