"""The authorizer against a model, against itself after changes, and its limits.

Cases 48, 50, 51 to 54 of the specification of security, as far as they need no connection.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.access import authorizer as module
from ottla.broker.access.authorizer import (
    EVERYONE,
    NO_ACL,
    OWN_TOPIC,
    SUPER_USER,
    AclIndex,
    Authorizer,
    decide,
    parsed_super_users,
)
from ottla.broker.access.everything import EVERYTHING
from ottla.broker.serving.context import Peer, RequestContext
from ottla.metadata.image import MetadataImage
from ottla.metadata.names import OWN_TOPICS
from ottla.metadata.security.acls import Acl, Operation, Pattern, Permission, Resource
from tests.support.sizes import examples

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

TOPIC, GROUP, CLUSTER = Resource.TOPIC, Resource.GROUP, Resource.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
ALICE, BOB, EVERYBODY = "User:alice", "User:bob", "User:*"
HERE, THERE = "10.0.0.1", "10.0.0.2"


def acl(
    name: str = "orders",
    operation: Operation = READ,
    permission: Permission = ALLOW,
    *,
    principal: str = ALICE,
    host: str = "*",
    pattern: Pattern = LITERAL,
    resource: Resource = TOPIC,
) -> Acl:
    return Acl(resource, pattern, name, principal, host, operation, permission)


def model(acls: Iterable[Acl], principal: str, host: str, operation: Operation, name: str) -> bool:
    """Rules 4, 5 and 7 in ten lines."""
    implied = {
        DESCRIBE: {READ, WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }
    matching = [
        one
        for one in acls
        if one.principal in (principal, EVERYBODY)
        and one.host in (host, "*")
        and (name.startswith(one.name) if one.pattern is PREFIXED else one.name in (name, "*"))
    ]
    denied = any(
        a.permission is DENY and a.operation in (operation, Operation.ALL) for a in matching
    )
    enough = {operation, Operation.ALL, *implied.get(operation, ())}
    return not denied and any(a.permission is ALLOW and a.operation in enough for a in matching)


EVERY_ACL = [
    acl(name, operation, permission, principal=principal, host=host, pattern=pattern)
    for principal in (ALICE, BOB, EVERYBODY)
    for host in (HERE, "*")
    for pattern, name in ((LITERAL, "orders"), (PREFIXED, "ord"), (LITERAL, "*"))
    for operation in (READ, WRITE, DESCRIBE, Operation.ALL)
    for permission in (ALLOW, DENY)
]
QUESTIONS = [
    (principal, host, operation, name)
    for principal in (ALICE, BOB)
    for host in (HERE, THERE)
    for operation in (READ, WRITE, DESCRIBE)
    for name in ("orders", "ordinary", "other")
]


def test_48_every_set_of_up_to_two_acls_decides_as_the_model_does() -> None:
    asked = 0
    for size in range(3):
        for chosen in itertools.combinations(EVERY_ACL, size):
            index = AclIndex(chosen)
            for principal, host, operation, name in QUESTIONS:
                asked += 1
                decision = decide(index, principal, host, operation, TOPIC, name)
                assert decision.allowed == model(chosen, principal, host, operation, name), (
                    chosen,
                    principal,
                    host,
                    operation,
                    name,
                )
                assert decision.rule in chosen or decision.rule == NO_ACL
    assert (len(EVERY_ACL), asked) == (144, 375_876)


@pytest.mark.long
def test_48_every_set_of_three_acls_decides_as_the_model_does() -> None:
    """One question: who asks, from where and for what is in every set of ACLs above."""
    asked = 0
    for chosen in itertools.combinations(EVERY_ACL, 3):
        asked += 1
        decision = decide(AclIndex(chosen), ALICE, HERE, READ, TOPIC, "orders")
        assert decision.allowed == model(chosen, ALICE, HERE, READ, "orders"), chosen
    assert asked == 487_344


_acls = st.lists(
    st.builds(
        Acl,
        st.sampled_from([TOPIC, GROUP]),
        st.sampled_from(Pattern),
        st.sampled_from(["a", "ab", "abc", "*", "b"]),
        st.sampled_from([ALICE, BOB, EVERYBODY]),
        st.sampled_from([HERE, "*"]),
        st.sampled_from([READ, WRITE, DESCRIBE, Operation.ALL]),
        st.sampled_from(Permission),
    ),
    max_size=12,
)


def _inside(index: AclIndex) -> object:
    return (
        {
            key: (patterns.literal, patterns.prefixed, patterns.lengths)
            for key, patterns in index._patterns.items()
        },
        index._named,
        {kind: counts for kind, counts in index._lengths.items() if counts},
    )


@settings(max_examples=examples(500))
@given(st.lists(_acls, min_size=1, max_size=6))
def test_50_an_index_that_followed_changes_is_one_made_afresh(states: list[list[Acl]]) -> None:
    """CVE-2024-27309: removing one ACL must not drop another."""
    followed = Authorizer((), everyone=True)
    before = MetadataImage()
    for acls in states:
        after = replace(before, version=before.version + 1, acls=frozenset(acls))
        followed.image_changed(before, after)
        before = after
        assert _inside(followed._index) == _inside(AclIndex(after.acls, everyone=True))


def may(authorizer: Authorizer, operation: Operation, name: str, host: str = HERE) -> bool:
    return authorizer.access(ALICE, host).may(operation, TOPIC, name)


def test_51_deny_read_does_not_deny_describe() -> None:
    authorizer = Authorizer([acl(operation=READ, permission=DENY), acl(operation=WRITE)])
    assert not may(authorizer, READ, "orders")
    assert may(authorizer, DESCRIBE, "orders")


@pytest.mark.parametrize(
    "operation", [READ, WRITE, Operation.DELETE, Operation.ALTER, DESCRIBE, Operation.ALL]
)
def test_51_some_operations_give_describe(operation: Operation) -> None:
    assert may(Authorizer([acl(operation=operation)]), DESCRIBE, "orders")
    assert not may(Authorizer([acl(operation=operation)]), Operation.CREATE, "orders") or (
        operation is Operation.ALL
    )


def test_51_alter_configs_gives_describe_configs() -> None:
    authorizer = Authorizer([acl(operation=Operation.ALTER_CONFIGS)])
    assert may(authorizer, Operation.DESCRIBE_CONFIGS, "orders")
    assert not may(authorizer, DESCRIBE, "orders")


def test_51_deny_all_beats_allow_and_a_super_user_beats_deny() -> None:
    acls = [acl(), acl("*", Operation.ALL, DENY, principal=EVERYBODY)]
    assert not may(Authorizer(acls), READ, "orders")
    trusted = Authorizer(acls, super_users=[ALICE]).access(ALICE, HERE)
    assert trusted.may(READ, TOPIC, "orders")
    assert trusted.may_on_any(WRITE, TOPIC)
    assert trusted.decide(READ, TOPIC, "orders").rule == SUPER_USER


@pytest.mark.parametrize(
    ("given", "coming"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::1", "2001:DB8:0:0:0:0:0:1"),
    ],
)
def test_52_hosts_are_compared_in_one_form(given: str, coming: str) -> None:
    authorizer = Authorizer([acl(host=given), acl("denied"), acl("denied", READ, DENY, host=given)])
    assert may(authorizer, READ, "orders", coming)
    assert not may(authorizer, READ, "denied", coming)
    assert not may(authorizer, READ, "orders", "10.0.0.9")
    assert may(authorizer, READ, "denied", "10.0.0.9")


@pytest.mark.parametrize("others", [acl(), acl("ord", pattern=PREFIXED), acl("*")])
def test_53_everyone_where_no_acl_names_the_resource(others: Acl) -> None:
    other = others._replace(principal=BOB)
    opened = Authorizer([other], everyone=True)
    closed = Authorizer([other])
    assert not may(opened, READ, "orders")
    assert may(opened, READ, "unnamed") == (other.name != "*")
    assert not may(closed, READ, "unnamed")
    assert opened.access(ALICE, HERE).may(READ, GROUP, "orders")
    if other.name != "*":
        assert opened.access(ALICE, HERE).decide(READ, TOPIC, "unnamed").rule == EVERYONE


@pytest.mark.parametrize("name", sorted(OWN_TOPICS))
def test_59_own_topics_are_closed_whatever_acls_say(name: str) -> None:
    authorizer = Authorizer(
        [acl("*", Operation.ALL, principal=EVERYBODY)], super_users=["User:root"], everyone=True
    )
    access = authorizer.access(ALICE, HERE)
    closed = {
        WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.ALTER_CONFIGS,
    }
    assert {one for one in Operation if not access.may(one, TOPIC, name)} == closed
    assert access.decide(WRITE, TOPIC, name).rule == OWN_TOPIC
    assert authorizer.access("User:root", HERE).may(WRITE, TOPIC, name)
    assert access.may(WRITE, GROUP, name)


def test_nodes_are_trusted_on_their_listener_alone() -> None:
    authorizer = Authorizer(())
    node = "User:__node"
    assert authorizer.access(node, HERE, from_node=True).may(WRITE, TOPIC, "__consumer_offsets")
    assert not authorizer.access(node, HERE).may(READ, TOPIC, "orders")
    assert not authorizer.access(ALICE, HERE, from_node=True).may(READ, TOPIC, "orders")


def test_without_an_authorizer_everything_is_allowed() -> None:
    assert EVERYTHING.may(WRITE, TOPIC, "__consumer_offsets")
    assert EVERYTHING.may_on_any(WRITE, TOPIC)


def _any(*acls: Acl, everyone: bool = False) -> bool:
    return Authorizer(acls, everyone=everyone).access(ALICE, HERE).may_on_any(WRITE, TOPIC)


def test_a_right_on_any_topic() -> None:
    write, denied = acl(operation=WRITE), acl(operation=WRITE, permission=DENY)
    prefix = acl("ord", WRITE, pattern=PREFIXED)
    assert not _any()
    assert _any(write)
    assert _any(acl(operation=Operation.ALL, principal=EVERYBODY))
    assert not _any(acl(operation=READ))
    assert not _any(write._replace(principal=BOB))
    assert not _any(write._replace(host=THERE))
    assert not _any(write, denied)
    assert _any(write, denied._replace(name="other"))
    assert not _any(write, denied._replace(name="o", pattern=PREFIXED))
    assert not _any(prefix, denied._replace(name="ord", pattern=PREFIXED))
    assert not _any(prefix, denied._replace(name="or", pattern=PREFIXED))
    assert _any(prefix, denied._replace(name="orde", pattern=PREFIXED))
    assert _any(prefix, denied._replace(name="ord"))
    assert not _any(write, prefix, denied._replace(name="*"))
    assert _any(acl("*", WRITE), denied)
    assert _any(everyone=True)


def test_answers_are_dropped_when_acls_change() -> None:
    image = MetadataImage()
    authorizer = Authorizer(image.acls)
    access = authorizer.access(ALICE, HERE)
    assert not access.may(READ, TOPIC, "orders")
    granted = replace(image, acls=frozenset({acl()}))
    authorizer.image_changed(image, granted)
    assert access.may(READ, TOPIC, "orders")
    assert authorizer.access(ALICE, HERE) is access
    authorizer.image_changed(granted, image)
    assert not access.may(READ, TOPIC, "orders")


def test_a_change_of_something_else_keeps_the_answers() -> None:
    image = MetadataImage()
    authorizer = Authorizer(image.acls)
    before = authorizer.state
    authorizer.image_changed(image, replace(image, next_producer_id=5))
    assert authorizer.state is before


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWERS", 10)
    monkeypatch.setattr(module, "MAX_ACCESSES", 3)
    authorizer = Authorizer([acl("t", pattern=PREFIXED)])
    access = authorizer.access(ALICE, HERE)
    for number in range(100):
        assert access.may(READ, TOPIC, f"t{number}")
    kept = [names for kinds in access._known.values() for names in kinds.values()]
    assert sum(map(len, kept)) <= 10
    known = [authorizer.access(f"User:u{number}", HERE) for number in range(3)]
    assert authorizer.access("User:u0", HERE) is known[0]
    authorizer.access("User:u3", HERE)
    assert authorizer.access("User:u0", HERE) is known[0]
    assert authorizer.access("User:u1", HERE) is not known[1]
    assert access.may(READ, TOPIC, "t")


def test_refusals_are_reported_with_what_was_asked() -> None:
    authorizer = Authorizer(())
    reported: list[tuple[str, Operation, Resource, str]] = []
    authorizer.report = lambda context, *asked: reported.append((context.peer.principal, *asked))
    peer = Peer(HERE, "SASL_SSL", ALICE, access=authorizer.access(ALICE, HERE))
    assert not RequestContext(peer, 0, 9, None).may(WRITE, TOPIC, "orders")
    assert reported == [(ALICE, WRITE, TOPIC, "orders")]


def test_54_a_hundred_thousand_acls_are_not_walked() -> None:
    """A decision looks at a handful of entries however many ACLs there are."""
    acls: Collection[Acl] = {
        acl(f"topic-{number}", principal=f"User:u{number % 1000}") for number in range(100_000)
    }
    index = AclIndex(acls, everyone=True)
    assert len(index.matching("User:u7", HERE, TOPIC, "topic-7")) == 1
    assert decide(index, "User:u7", HERE, READ, TOPIC, "topic-7").allowed
    assert not decide(index, "User:u8", HERE, READ, TOPIC, "topic-7").allowed


def test_super_users_have_semicolons_between_them() -> None:
    assert parsed_super_users("") == frozenset()
    assert parsed_super_users(" User:a ; User:CN=b,O=c;") == {"User:a", "User:CN=b,O=c"}
