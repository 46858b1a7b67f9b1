"""Admin calls on ACLs: who may do what with which resource."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.client import arguments
from ottla.client.admin.base import AdminBase, check_parts
from ottla.client.admin.types import Acl
from ottla.client.errors import check, failure
from ottla.wire.schema.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.wire.schema.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.wire.schema.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from ottla.client.admin.types import AclOperation, AclPattern, AclPermission, AclResource

RESOURCES: Final[dict[AclResource, int]] = {
    "topic": 2,
    "group": 3,
    "cluster": 4,
    "transactional_id": 5,
    "delegation_token": 6,
    "user": 7,
}
PATTERNS: Final[dict[AclPattern, int]] = {"literal": 3, "prefixed": 4}
OPERATIONS: Final[dict[AclOperation, int]] = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
    "create_tokens": 13,
    "describe_tokens": 14,
    "two_phase_commit": 15,
}
PERMISSIONS: Final[dict[AclPermission, int]] = {"deny": 2, "allow": 3}
_ANY: Final = 1
_MATCH: Final = 2
_RESOURCE_OF: Final = {number: name for name, number in RESOURCES.items()}
_PATTERN_OF: Final = {number: name for name, number in PATTERNS.items()}
_OPERATION_OF: Final = {number: name for name, number in OPERATIONS.items()}
_PERMISSION_OF: Final = {number: name for name, number in PERMISSIONS.items()}


class AclCalls(AdminBase):
    """Create, describe and delete ACLs."""

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """Create these ACLs; those that exist stay as they are."""
        if not isinstance(acls, Iterable):
            raise arguments.wrong_type("acls", "[Acl(...)]", acls)
        wanted = [arguments.instance("acls", one, Acl, "Acl(...)") for one in acls]
        request = CreateAclsRequest([_creation(one) for one in wanted])

        async def attempt() -> None:
            answer: CreateAclsResponse = await self._client.send(
                request, to="controller", min_version=1
            )
            check_parts(
                "create ACLs",
                {
                    acl: failure(one.error_code, f"create the ACL {acl}", one.error_message)
                    for acl, one in zip(wanted, answer.results, strict=True)
                },
            )

        if wanted:
            await self._client.retry(attempt)

    async def describe_acls(
        self,
        *,
        resource: AclResource | None = None,
        name: str | None = None,
        pattern: AclPattern | None = None,
        covering: bool = False,
        principal: str | None = None,
        host: str | None = None,
        operation: AclOperation | None = None,
        permission: AclPermission | None = None,
    ) -> list[Acl]:
        """The ACLs with these values; what is left out may be anything.

        With `covering`, those that apply to a resource of this name: literal, `*` and prefixed.
        """
        chosen = _filter(resource, name, pattern, covering, principal, host, operation, permission)

        async def attempt() -> list[Acl]:
            answer: DescribeAclsResponse = await self._client.send(
                DescribeAclsRequest(*chosen), to="any", min_version=1
            )
            check(answer.error_code, "describe ACLs", answer.error_message)
            return sorted(
                _acl(
                    one.resource_type,
                    one.resource_name,
                    one.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
                for one in answer.resources
                for acl in one.acls
                if one.resource_type in _RESOURCE_OF and acl.operation in _OPERATION_OF
            )

        return await self._client.retry(attempt)

    async def delete_acls(
        self,
        *,
        resource: AclResource | None = None,
        name: str | None = None,
        pattern: AclPattern | None = None,
        covering: bool = False,
        principal: str | None = None,
        host: str | None = None,
        operation: AclOperation | None = None,
        permission: AclPermission | None = None,
    ) -> list[Acl]:
        """Delete the ACLs that `describe_acls` finds with the same arguments; returns them."""
        chosen = _filter(resource, name, pattern, covering, principal, host, operation, permission)

        async def attempt() -> list[Acl]:
            answer: DeleteAclsResponse = await self._client.send(
                DeleteAclsRequest([DeleteAclsFilter(*chosen)]), to="controller", min_version=1
            )
            [result] = answer.filter_results
            check(result.error_code, "delete ACLs", result.error_message)
            deleted = []
            for one in result.matching_acls:
                acl = _acl(
                    one.resource_type,
                    one.resource_name,
                    one.pattern_type,
                    one.principal,
                    one.host,
                    one.operation,
                    one.permission_type,
                )
                check(one.error_code, f"delete the ACL {acl}", one.error_message)
                deleted.append(acl)
            return sorted(deleted)

        return await self._client.retry(attempt)


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        RESOURCES[acl.resource],
        acl.name,
        PATTERNS[acl.pattern],
        acl.principal,
        acl.host,
        OPERATIONS[acl.operation],
        PERMISSIONS[acl.permission],
    )


def _acl(
    resource: int,
    name: str,
    pattern: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> Acl:
    return Acl(
        _RESOURCE_OF[resource],
        name,
        _OPERATION_OF[operation],
        principal,
        permission=_PERMISSION_OF[permission],
        pattern=_PATTERN_OF[pattern],
        host=host,
    )


def _filter(
    resource: AclResource | None,
    name: str | None,
    pattern: AclPattern | None,
    covering: bool,
    principal: str | None,
    host: str | None,
    operation: AclOperation | None,
    permission: AclPermission | None,
) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    """In the order of the requests' fields."""
    arguments.flag("covering", covering)
    for text, given in (("name", name), ("principal", principal), ("host", host)):
        arguments.optional_text(text, given)
    number = _ANY if pattern is None else PATTERNS[arguments.choice("pattern", pattern, PATTERNS)]
    if covering:
        number = _MATCH
    return (
        _ANY if resource is None else RESOURCES[arguments.choice("resource", resource, RESOURCES)],
        name,
        number,
        principal,
        host,
        _ANY
        if operation is None
        else OPERATIONS[arguments.choice("operation", operation, OPERATIONS)],
        _ANY
        if permission is None
        else PERMISSIONS[arguments.choice("permission", permission, PERMISSIONS)],
    )
