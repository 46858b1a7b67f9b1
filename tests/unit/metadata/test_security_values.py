"""ACLs, users and quotas as values: what is valid, what a filter selects, what a change does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ottla.metadata.changes.apply import apply_all
from ottla.metadata.changes.security import (
    AddAcls,
    RemoveAcls,
    RemoveScramCredential,
    SetClientQuotas,
    SetScramCredential,
)
from ottla.metadata.codec import (
    UndecodableMetadata,
    decode_change,
    decode_image,
    encode_change,
    encode_image,
)
from ottla.metadata.errors import InvalidAcl, InvalidQuota, UnacceptableCredential
from ottla.metadata.image import MetadataImage
from ottla.metadata.security import quotas
from ottla.metadata.security.acls import (
    Acl,
    AclFilter,
    Operation,
    Pattern,
    Permission,
    Resource,
    canonical_host,
    checked_acl,
    checked_filter,
)
from ottla.metadata.security.quotas import (
    EntityPart,
    FilterPart,
    QuotaFilter,
    check_value,
    checked_entity,
    entity_key,
)
from ottla.metadata.security.users import ScramCredential, check_credential, check_user_name

if TYPE_CHECKING:
    from ottla.metadata.changes.apply import Change

ORDERS = Acl(
    Resource.TOPIC,
    Pattern.LITERAL,
    "orders",
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
PREFIX = ORDERS._replace(pattern=Pattern.PREFIXED, name="ord")
EVERY = ORDERS._replace(name="*")
CREDENTIAL = ScramCredential(b"salt" * 2, 4096, b"\x00" * 32, b"\xff" * 32)
ALICE = (EntityPart("user", "alice"),)


def test_a_set_of_acls_has_each_once_and_removes_only_what_is_named() -> None:
    image = apply_all(MetadataImage(), [AddAcls((ORDERS, PREFIX)), AddAcls((ORDERS, EVERY))])
    assert image.acls == {ORDERS, PREFIX, EVERY}
    image = apply_all(image, [RemoveAcls((PREFIX, ORDERS._replace(host="10.0.0.1")))])
    assert image.acls == {ORDERS, EVERY}


def test_a_user_goes_with_its_last_credential() -> None:
    made: list[Change] = [
        SetScramCredential("alice", "SCRAM-SHA-256", CREDENTIAL),
        SetScramCredential("alice", "SCRAM-SHA-512", CREDENTIAL),
        RemoveScramCredential("alice", "SCRAM-SHA-256"),
        RemoveScramCredential("nobody", "SCRAM-SHA-256"),
    ]
    image = apply_all(MetadataImage(), made)
    assert image.scram == {"alice": {"SCRAM-SHA-512": CREDENTIAL}}
    assert not apply_all(image, [RemoveScramCredential("alice", "SCRAM-SHA-512")]).scram


def test_an_entity_goes_with_its_last_quota() -> None:
    image = apply_all(
        MetadataImage(),
        [
            SetClientQuotas(ALICE, {"producer_byte_rate": 1.0, "request_percentage": 50.0}),
            SetClientQuotas(ALICE, {"producer_byte_rate": None}),
        ],
    )
    (quota,) = image.client_quotas.values()
    assert (quota.entity, quota.values) == (ALICE, {"request_percentage": 50.0})
    assert not apply_all(
        image, [SetClientQuotas(ALICE, {"request_percentage": None})]
    ).client_quotas


def test_changes_and_images_survive_the_store() -> None:
    made: list[Change] = [
        AddAcls((ORDERS, PREFIX, EVERY)),
        SetScramCredential("b\u00f6b", "SCRAM-SHA-256", CREDENTIAL),
        SetClientQuotas(
            (EntityPart("client-id", None), EntityPart("user", "b\u00f6b")),
            {"producer_byte_rate": 1e6},
        ),
    ]
    assert [decode_change(encode_change(change)) for change in made] == made
    image = apply_all(MetadataImage(), made)
    again = decode_image(encode_image(image))
    assert again == image
    assert {type(acl.operation) for acl in again.acls} == {Operation}


def test_an_image_of_the_release_before_has_none_of_them() -> None:
    image = decode_image('{"version":3,"cluster_id":"c"}')
    assert (image.acls, image.scram, image.client_quotas) == (frozenset(), {}, {})


def test_keys_of_a_credential_are_in_no_repr() -> None:
    shown = repr(SetScramCredential("alice", "SCRAM-SHA-256", CREDENTIAL))
    assert "iterations=4096" in shown
    assert "salt=" not in shown
    assert "key" not in shown


GOOD = (2, 3, "orders", "User:alice", "*", 3, 3)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((0, value) for value in (0, 1, 8, -1)),
        *((1, value) for value in (0, 1, 2, 5)),
        *((2, value) for value in ("", "x" * 1001)),
        *((3, value) for value in ("", "alice", ":alice", "User:", "User:" + "x" * 1000)),
        *((4, value) for value in ("", "localhost", "10.0.0", "10.0.0.0/8", "::zz", "\ud800:")),
        *((5, value) for value in (0, 1, 16)),
        *((6, value) for value in (0, 1, 4)),
    ],
)
def test_an_acl_with_a_value_that_means_nothing_is_refused(place: int, value: object) -> None:
    values: list[object] = [*GOOD]
    checked_acl(*values)  # type: ignore[arg-type]
    values[place] = value
    with pytest.raises(InvalidAcl):
        checked_acl(*values)  # type: ignore[arg-type]


def test_the_cluster_has_one_name() -> None:
    assert checked_acl(4, 3, "kafka-cluster", "User:a", "*", 2, 3).resource is Resource.CLUSTER
    for name in ("other", "*"):
        with pytest.raises(InvalidAcl, match="kafka-cluster"):
            checked_acl(4, 3, name, "User:a", "*", 2, 3)


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("*", "*"),
        ("not an address", "not an address"),
        ("a:b", "a:b"),
    ],
)
def test_hosts_are_compared_in_one_form(given: str, canonical: str) -> None:
    assert canonical_host(given) == canonical


@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        (AclFilter(), {ORDERS, PREFIX, EVERY}),
        (AclFilter(name="orders"), {ORDERS}),
        (AclFilter(pattern=2, name="orders"), {ORDERS, PREFIX, EVERY}),
        (AclFilter(pattern=2, name="ord"), {PREFIX, EVERY}),
        (AclFilter(pattern=2, name="other"), {EVERY}),
        (AclFilter(pattern=2), {ORDERS, PREFIX, EVERY}),
        (AclFilter(pattern=3), {ORDERS, EVERY}),
        (AclFilter(pattern=4), {PREFIX}),
        (AclFilter(pattern=4, name="orders"), set()),
        (AclFilter(resource=3), set()),
        (AclFilter(resource=2, operation=3, permission=3), {ORDERS, PREFIX, EVERY}),
        (AclFilter(operation=2), set()),
        (AclFilter(permission=2), set()),
        (AclFilter(principal="User:alice"), {ORDERS, PREFIX, EVERY}),
        (AclFilter(principal="User:*"), set()),
        (AclFilter(host="*"), {ORDERS, PREFIX, EVERY}),
        (AclFilter(host="10.0.0.1"), set()),
    ],
)
def test_a_filter_selects(filter_: AclFilter, found: set[Acl]) -> None:
    assert {acl for acl in (ORDERS, PREFIX, EVERY) if filter_.matches(acl)} == found


@pytest.mark.parametrize("place", [0, 1, 5, 6])
@pytest.mark.parametrize("value", [0, -1, 16])
def test_a_filter_of_unknown_values_is_refused(place: int, value: int) -> None:
    values: list[int | None] = [1, 1, None, None, None, 1, 1]
    values[place] = value
    with pytest.raises(InvalidAcl):
        checked_filter(*values)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "a\x00", "__node", "\x7f"])
def test_names_no_user_can_have(name: str) -> None:
    with pytest.raises(UnacceptableCredential):
        check_user_name(name)


def test_names_a_user_can_have() -> None:
    for name in ("alice", "a,b=c", "x" * 255, "b\u00f6b", "_x"):
        check_user_name(name)
    check_user_name("__node", own=True)


@pytest.mark.parametrize(
    ("salt", "iterations", "salted"),
    [
        (b"x" * 7, 4096, b"y" * 32),
        (b"x" * 256, 4096, b"y" * 32),
        (b"x" * 8, 4095, b"y" * 32),
        (b"x" * 8, 16385, b"y" * 32),
        (b"x" * 8, 4096, b"y" * 31),
        (b"x" * 8, 4096, b"y" * 64),
    ],
)
def test_credentials_that_are_too_weak_or_malformed(
    salt: bytes, iterations: int, salted: bytes
) -> None:
    check_credential("SCRAM-SHA-256", b"x" * 8, 16384, b"y" * 32)
    check_credential("SCRAM-SHA-512", b"x" * 8, 4096, b"y" * 64)
    with pytest.raises(UnacceptableCredential):
        check_credential("SCRAM-SHA-256", salt, iterations, salted)


def test_an_entity_is_the_same_in_any_order() -> None:
    user, client = EntityPart("user", "a"), EntityPart("client-id", None)
    assert checked_entity([user, client]) == checked_entity([client, user]) == (client, user)
    assert entity_key((client, user)) == '{"client-id":null,"user":"a"}'
    assert checked_entity([EntityPart("ip", "::ffff:10.0.0.1")]) == (EntityPart("ip", "10.0.0.1"),)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("group", "g")],
        [("user", "a"), ("user", "b")],
        [("ip", "10.0.0.1"), ("user", "a")],
        [("ip", "localhost")],
        [("ip", "*")],
        [("user", "")],
        [("user", "x" * 1001)],
    ],
)
def test_entities_that_cannot_be(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(InvalidQuota):
        checked_entity([EntityPart(*part) for part in parts])


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("user", "producer_byte_rate", 0.0),
        ("user", "producer_byte_rate", -1.0),
        ("user", "producer_byte_rate", 1.5),
        ("user", "producer_byte_rate", float("nan")),
        ("user", "request_percentage", float("inf")),
        ("user", "connection_creation_rate", 1.0),
        ("ip", "producer_byte_rate", 1.0),
        ("user", "SCRAM-SHA-256", 1.0),
    ],
)
def test_quotas_that_cannot_be(kind: str, key: str, value: float) -> None:
    check_value((EntityPart("user", None),), "request_percentage", 0.5)
    check_value((EntityPart("ip", None),), "connection_creation_rate", 5.0)
    with pytest.raises(InvalidQuota):
        check_value((EntityPart(kind, None),), key, value)


BOTH = (EntityPart("client-id", "c"), EntityPart("user", None))
ENTITIES = {ALICE, BOTH, (EntityPart("ip", None),)}


@pytest.mark.parametrize(
    ("parts", "strict", "found"),
    [
        ([], False, ENTITIES),
        ([], True, set()),
        ([("user", 2)], False, {ALICE, BOTH}),
        ([("user", 2)], True, {ALICE}),
        ([("user", 0, "alice")], False, {ALICE}),
        ([("user", 1)], False, {BOTH}),
        ([("user", 1)], True, set()),
        ([("user", 1), ("client-id", 0, "c")], True, {BOTH}),
        ([("user", 1), ("client-id", 0, "d")], True, set()),
        ([("ip", 1)], True, {(EntityPart("ip", None),)}),
    ],
)
def test_a_filter_of_quotas_selects(
    parts: list[tuple[str, int]], strict: bool, found: set[quotas.Entity]
) -> None:
    filter_ = quotas.checked_filter([FilterPart(*part) for part in parts], strict=strict)
    assert isinstance(filter_, QuotaFilter)
    assert {entity for entity in ENTITIES if filter_.matches(entity)} == found


@pytest.mark.parametrize(
    "parts",
    [
        [("group", 2)],
        [("user", 3)],
        [("user", 0)],
        [("user", 1, "a")],
        [("user", 2, "a")],
        [("user", 2), ("user", 2)],
        [("ip", 2), ("user", 2)],
    ],
)
def test_filters_of_quotas_that_cannot_be(parts: list[tuple[str, int]]) -> None:
    with pytest.raises(InvalidQuota):
        quotas.checked_filter([FilterPart(*part) for part in parts], strict=False)


_STORED = {
    "resource": 2,
    "pattern": 3,
    "name": "orders",
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission": 3,
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource": 99},
        {"resource": True},
        {"resource": "2"},
        {"name": 5},
        {"name": None},
        {"host": ["*"]},
        {"another": 1},
    ],
)
def test_a_stored_acl_is_read_strictly(wrong: dict[str, object]) -> None:
    """Also on the quick way that 100,000 of them take."""

    def read(acl: dict[str, object]) -> frozenset[Acl]:
        empty = json.loads(encode_image(MetadataImage()))
        return decode_image(json.dumps({**empty, "acls": [acl]})).acls

    right = Acl(
        *(Resource.TOPIC, Pattern.LITERAL, "orders", "User:a", "*"),
        *(Operation.READ, Permission.ALLOW),
    )
    assert read(_STORED) == {right}
    with pytest.raises(UndecodableMetadata):
        read({**_STORED, **wrong})
    for name in _STORED:
        with pytest.raises(UndecodableMetadata):
            read({key: value for key, value in _STORED.items() if key != name})
