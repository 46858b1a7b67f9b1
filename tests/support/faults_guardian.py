"""A worker beside those of `faults_workers` that changes users, ACLs and quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.wire.schema.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.schema.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.schema.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.schema.describe_acls import DescribeAclsRequest
from ottla.wire.schema.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.wire.schema.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from tests.support.faults_workers import PlainWorker

if TYPE_CHECKING:
    from tests.support.faults_client import PlainClient

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
DESCRIBE_QUOTAS, ALTER_QUOTAS, DESCRIBE_USERS, ALTER_USERS = 48, 49, 50, 51
NAMES: Final = ("ann", "ben", "cleo")
KEY: Final = "producer_byte_rate"
SHA_256: Final = 1
Value = tuple[str, str]
"""Which table, and whose row in it."""


class Guardian(PlainWorker):
    """Each name may have a password, an ACL and a quota; a number says which one it has."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(port, seed)
        self._now: dict[Value, int | None] = {
            (kind, name): None for kind in ("user", "acl", "quota") for name in NAMES
        }
        self._asked = dict(self._now)

    def _look(self, client: PlainClient) -> None:
        found = {**self._users(client), **self._acls(client), **self._quotas(client)}
        for key in self._now:
            has, known = found.get(key), (self._now[key], self._asked[key])
            assert has in known, f"{key} is {has}, was and should be: {known}"
            self._now[key] = self._asked[key] = has
        assert found.keys() <= self._now.keys(), found

    def _work(self, client: PlainClient) -> None:
        key = self.random.choice(list(self._now))
        has = self._now[key]
        wanted = None if has is not None and self.random.random() < 0.4 else self._number(has)
        self._asked[key] = wanted
        change = {"user": self._set_user, "acl": self._set_acl, "quota": self._set_quota}[key[0]]
        change(client, key[1], has, wanted)
        self._now[key] = self._asked[key]

    def _number(self, has: int | None) -> int:
        """An ACL is not changed, but added and removed."""
        return has if has is not None and self.random.random() < 0.1 else self.random.randint(3, 7)

    # -- users: the number of iterations ----------------------------------------------------------

    def _users(self, client: PlainClient) -> dict[Value, int]:
        answer = client.ask(DESCRIBE_USERS, 0, DescribeUserScramCredentialsRequest(None))
        return {
            ("user", one.user): one.credential_infos[0].iterations // 4096 for one in answer.results
        }

    def _set_user(
        self, client: PlainClient, name: str, has: int | None, wanted: int | None
    ) -> None:
        request = AlterUserScramCredentialsRequest([ScramCredentialDeletion(name, SHA_256)])
        if wanted is not None:
            self._asked["user", name] = wanted = min(wanted, 4)  # Kafka's limit is 16,384
            made = ScramCredentialUpsertion(name, SHA_256, 4096 * wanted, b"salt" * 4, bytes(32))
            request = AlterUserScramCredentialsRequest([], [made])
        _expect_none(client.ask(ALTER_USERS, 0, request).results)

    # -- ACLs: the operation ----------------------------------------------------------------------

    def _acls(self, client: PlainClient) -> dict[Value, int]:
        answer = client.ask(DESCRIBE_ACLS, 2, DescribeAclsRequest(1, None, 1, None, None, 1, 1))
        return {
            ("acl", acl.principal.removeprefix("User:")): acl.operation
            for resource in answer.resources
            for acl in resource.acls
        }

    def _set_acl(self, client: PlainClient, name: str, has: int | None, wanted: int | None) -> None:
        principal = f"User:{name}"
        if wanted is not None and has is not None:
            self._asked["acl", name] = None  # first one step, then the other
            wanted = None
        if wanted is None:
            one = DeleteAclsFilter(2, None, 1, principal, None, 1, 1)
            _expect_none(client.ask(DELETE_ACLS, 2, DeleteAclsRequest([one])).filter_results)
        else:
            acl = AclCreation(2, "orders", 3, principal, "*", wanted, 3)
            _expect_none(client.ask(CREATE_ACLS, 2, CreateAclsRequest([acl])).results)

    # -- quotas: megabytes ------------------------------------------------------------------------

    def _quotas(self, client: PlainClient) -> dict[Value, int]:
        everybody = DescribeClientQuotasRequest([ComponentData("user", 2, None)])
        answer = client.ask(DESCRIBE_QUOTAS, 1, everybody)
        return {
            ("quota", one.entity[0].entity_name): int(one.values[0].value) >> 20
            for one in answer.entries
        }

    def _set_quota(
        self, client: PlainClient, name: str, has: int | None, wanted: int | None
    ) -> None:
        rate = OpData(KEY, float((wanted or 0) << 20), remove=wanted is None)
        entry = RequestEntryData([RequestEntityData("user", name)], [rate])
        _expect_none(client.ask(ALTER_QUOTAS, 1, AlterClientQuotasRequest([entry])).entries)


def _expect_none(results: Any) -> None:
    (result,) = results
    assert result.error_code == ErrorCode.NONE, ErrorCode(result.error_code)
