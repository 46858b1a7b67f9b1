"""Admin calls on users, ACLs and quotas: what is asked, and what is made of the answers."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import Acl, Admin, QuotaDescription, UserDescription
from ottla.client.errors import (
    BadArgument,
    ClusterAuthorizationFailed,
    KafkaError,
    PartialFailure,
    WrongType,
)
from ottla.security.scram import MECHANISMS, credential_of_salted, is_password
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    ResponseEntityData,
    ResponseEntryData,
)
from ottla.wire.schema.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
)
from ottla.wire.schema.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.wire.schema.delete_acls import (
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
from ottla.wire.schema.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ottla.wire.schema.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tests.support.client_broker import ScriptedBroker, describe

ORDERS = Acl("topic", "orders", "read", "User:alice")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("allow alice read topic:orders", [ORDERS]),
        (
            "deny User:bob write,describe topic:o*",
            [
                Acl("topic", "o", one, "User:bob", "deny", "prefixed")
                for one in ("write", "describe")
            ],
        ),
        ("allow User:* all cluster", [Acl("cluster", "kafka-cluster", "all", "User:*")]),
        ("allow a write txn:t", [Acl("transactional_id", "t", "write", "User:a")]),
        ("allow a read group:*", [Acl("group", "*", "read", "User:a")]),
        (
            'allow "Jürgen Müller" read "group:my group*"',
            [Acl("group", "my group", "read", "User:Jürgen Müller", "allow", "prefixed")],
        ),
        (
            'deny User:"CN=alice,O=My Company"  read group:"my group"',
            [Acl("group", "my group", "read", "User:CN=alice,O=My Company", "deny")],
        ),
        ("allow CN=urn:a\\,b read group:g", [Acl("group", "g", "read", "User:CN=urn:a\\,b")]),
        ('allow "say ""hi""" read group:g', [Acl("group", "g", "read", 'User:say "hi"')]),
    ],
)
def test_acls_as_text(text: str, expected: list[Acl]) -> None:
    assert Acl.parse(text) == expected
    for one in expected:
        assert Acl.parse(str(one)) == [one]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "allow a read",
        "permit a read topic:x",
        "allow a reed topic:x",
        "allow a read table:x",
        "allow Jürgen Müller read topic:x",
        'allow "Jürgen read topic:x',
        'allow "" read topic:x',
        "allow a read " + "topic:x" * 10_000 + ' "',
    ],
)
def test_texts_that_are_no_acl(text: str) -> None:
    with pytest.raises(BadArgument):
        Acl.parse(text)


async def test_users() -> None:
    async with ScriptedBroker() as broker, Admin(broker.bootstrap) as admin:
        describe({1: broker}, controller=1)
        done = AlterUserScramCredentialsResponse(
            results=[AlterUserScramCredentialsResult("alice", 0, None)]
        )
        broker.script(AlterUserScramCredentialsRequest, done)
        none = DescribeUserScramCredentialsResult("alice", ErrorCode.RESOURCE_NOT_FOUND, "none")
        broker.script(
            DescribeUserScramCredentialsRequest,
            DescribeUserScramCredentialsResponse(results=[none]),
        )
        assert await admin.create_user("alice", "canary", iterations=4096)
        [asked] = broker.asked(AlterUserScramCredentialsRequest)
        [one] = asked.upsertions
        assert (one.name, one.mechanism, one.iterations) == ("alice", 2, 4096)
        made = credential_of_salted(
            MECHANISMS["SCRAM-SHA-512"], bytes(one.salted_password), bytes(one.salt), 4096
        )
        assert is_password(made, "canary")

        found = [
            DescribeUserScramCredentialsResult(
                "alice", 0, None, [CredentialInfo(1, 4096), CredentialInfo(2, 8192)]
            )
        ]
        broker.script(
            DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse(results=found)
        )
        described = UserDescription("alice", {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 8192})
        assert await admin.describe_users() == [described]
        assert broker.requests[-1].users is None
        assert await admin.describe_users([]) == []

        # Apache Kafka takes one change of a user in a request.
        twice = AlterUserScramCredentialsResult("alice", ErrorCode.DUPLICATE_RESOURCE, "twice")
        broker.script(AlterUserScramCredentialsRequest, done._replace(results=[twice]), done, done)
        assert not await admin.create_user("alice", "canary", iterations=4096)
        sent = broker.asked(AlterUserScramCredentialsRequest)[-3:]
        assert [[one.mechanism for one in request.upsertions] for request in sent] == [
            [1, 2],
            [1],
            [2],
        ]
        broker.script(AlterUserScramCredentialsRequest, done)
        await admin.delete_user("alice")
        assert [list(one.deletions) for one in broker.requests[-2:]] == [
            [ScramCredentialDeletion("alice", 1)],
            [ScramCredentialDeletion("alice", 2)],
        ]
        broker.script(
            AlterUserScramCredentialsRequest,
            done._replace(
                results=[
                    AlterUserScramCredentialsResult("alice", ErrorCode.RESOURCE_NOT_FOUND, "none")
                ]
            ),
        )
        with pytest.raises(KafkaError, match="delete user 'alice': RESOURCE_NOT_FOUND"):
            await admin.delete_user("alice", mechanism="SCRAM-SHA-256")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("alice", b"canary"), WrongType),
        (("alice", ""), BadArgument),
        (("", "canary"), BadArgument),
    ],
)
async def test_wrong_users_are_not_sent(arguments: Any, error: type[Exception]) -> None:
    async with Admin("127.0.0.1:1") as admin:
        with pytest.raises(error) as failure:
            await admin.create_user(*arguments)
        assert "canary" not in str(failure.value)
        with pytest.raises(BadArgument, match="iterations"):
            await admin.create_user("alice", "canary", iterations=1)


async def test_acls() -> None:
    async with ScriptedBroker() as broker, Admin(broker.bootstrap) as admin:
        describe({1: broker}, controller=1)
        broker.script(CreateAclsRequest, CreateAclsResponse(results=[AclCreationResult(0, None)]))
        await admin.create_acls([ORDERS])
        assert list(broker.requests[-1].creations) == [
            AclCreation(2, "orders", 3, "User:alice", "*", 3, 3)
        ]
        await admin.create_acls([])
        broker.script(
            DescribeAclsRequest,
            DescribeAclsResponse(
                resources=[
                    DescribeAclsResource(2, "orders", 3, [AclDescription("User:alice", "*", 3, 3)])
                ]
            ),
        )
        assert await admin.describe_acls() == [ORDERS]
        assert broker.requests[-1] == DescribeAclsRequest(1, None, 1, None, None, 1, 1)
        await admin.describe_acls(resource="topic", name="orders", covering=True)
        assert broker.requests[-1] == DescribeAclsRequest(2, "orders", 2, None, None, 1, 1)
        deleted = DeleteAclsMatchingAcl(0, None, 2, "orders", 3, "User:alice", "*", 3, 3)
        broker.script(
            DeleteAclsRequest,
            DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(0, None, [deleted])]),
        )
        assert await admin.delete_acls(principal="User:alice", permission="allow") == [ORDERS]


async def test_refusals_name_what_was_tried_case_102() -> None:
    async with ScriptedBroker() as broker, Admin(broker.bootstrap) as admin:
        describe({1: broker}, controller=1)
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        broker.script(DescribeAclsRequest, DescribeAclsResponse(error_code=denied))
        with pytest.raises(
            ClusterAuthorizationFailed, match=r"describe ACLs: CLUSTER_.*an ACL .* on the cluster"
        ):
            await admin.describe_acls()
        both = [AclCreationResult(0, None), AclCreationResult(denied, None)]
        broker.script(CreateAclsRequest, CreateAclsResponse(results=both))
        with pytest.raises(PartialFailure, match="create the ACL deny User:bob read topic:orders"):
            await admin.create_acls([ORDERS, Acl("topic", "orders", "read", "User:bob", "deny")])


async def test_quotas() -> None:
    async with ScriptedBroker() as broker, Admin(broker.bootstrap) as admin:
        describe({1: broker}, controller=1)
        whose = [ResponseEntityData("user", "alice")]
        broker.script(
            AlterClientQuotasRequest,
            AlterClientQuotasResponse(entries=[ResponseEntryData(0, None, whose)]),
        )
        await admin.alter_quotas(
            {"user": "alice", "client-id": None},
            {"producer_byte_rate": 1e6, "request_percentage": None},
        )
        [entry] = broker.requests[-1].entries
        assert list(entry.entity) == [
            RequestEntityData("user", "alice"),
            RequestEntityData("client-id", None),
        ]
        assert list(entry.ops) == [
            OpData("producer_byte_rate", 1e6, False),
            OpData("request_percentage", 0.0, True),
        ]
        broker.script(
            DescribeClientQuotasRequest,
            DescribeClientQuotasResponse(
                entries=[
                    EntryData([EntityData("user", None)], [ValueData("producer_byte_rate", 5.0)])
                ]
            ),
        )
        assert await admin.describe_quotas({"user": None}) == [
            QuotaDescription({"user": None}, {"producer_byte_rate": 5.0})
        ]
        assert list(broker.requests[-1].components) == [ComponentData("user", 1, None)]
        with pytest.raises(BadArgument, match="entity"):
            await admin.alter_quotas({"group": "x"}, {})  # type: ignore[dict-item]
        with pytest.raises(BadArgument, match="entity"):
            await admin.describe_quotas({})
