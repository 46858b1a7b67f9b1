"""Principals: names of certificates and mapping rules (cases 10 and 11)."""

from __future__ import annotations

import pickle
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.errors import BadSecuritySetting
from ottla.security.principal import (
    ANONYMOUS,
    BadPrincipal,
    MappingRules,
    Principal,
    UnreadableCertificate,
    check_name,
    subject_of,
)
from tests.support.subjects import KNOWN

# Those of Kafka's documentation.
DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)
MAPPED = [
    (DOCUMENTED, "CN=kafka-server1,OU=ServiceUsers,O=Unknown,L=Unknown", "kafka-server1"),
    (DOCUMENTED, "CN=Admin,OU=Kafka,O=U,L=U,ST=U,C=NL", "admin@kafka"),
    (DOCUMENTED, "OU=x,cn=Some.One,O=y", "some.one"),
    (DOCUMENTED, "OU=no name", "OU=no name"),
    ("", "CN=a", None),
    ("RULE:^CN=(.*)$/$1/U", "CN=alice", "ALICE"),
    ("RULE:CN=(.*)/$0!/", "CN=alice", "CN=alice!"),
    ("RULE:CN=(.*)/$1-$2/", "CN=alice", "alice-$2"),
    ("RULE:CN=(.*)/$12/", "CN=alice", "alice2"),
    ("RULE:CN=(.*)/a\\/b\\$1/", "CN=alice", "a/b$1"),
    ("RULE:CN=(.*),DC=a\\/b/$1/", "CN=alice,DC=a/b", "alice"),
    ("RULE:CN=(a)?(.*)/$1$2/", "CN=bob", "bob"),
    ("RULE:N=(.*)/$1/", "CN=alice", None),  # a part of the name is no match
    ("RULE:CN=(.*)/$1/,DEFAULT", "OU=x", "OU=x"),
    (" DEFAULT , RULE:CN=(.*)/$1/ ", "CN=x", "CN=x"),
    ("RULE:.*,OU=(a,b).*/$1/", "CN=x,OU=a,b", "a,b"),
]


def test_10_subjects_are_written_as_java_writes_them() -> None:
    assert {subject_of(der): der for der in KNOWN.values()} == KNOWN


def test_10_bytes_that_are_no_certificate_raise_one_error() -> None:
    der = KNOWN["CN=alice,OU=billing,O=Example"]
    for cut in range(0, 200, 3):
        with pytest.raises(UnreadableCertificate):
            subject_of(der[:cut])


@given(st.binary(max_size=200))
def test_10_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(UnreadableCertificate):
        subject_of(data)


@given(st.integers(0, 400), st.integers(0, 255))
def test_10_a_changed_byte_is_read_or_refused(at: int, byte: int) -> None:
    der = bytearray(KNOWN["CN=alice,OU=billing,O=Example"])
    der[at % len(der)] = byte
    with suppress(UnreadableCertificate):
        subject_of(bytes(der))


@pytest.mark.parametrize(("rules", "name", "mapped"), MAPPED)
def test_11_mapping_rules(rules: str, name: str, mapped: str | None) -> None:
    assert MappingRules.parse(rules).apply(name) == mapped


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULT/L",
        "DEFAULT/",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/X",
        "RULE:CN=(.*)/$/",
        "RULE:CN=(.*)/$x/",
        "RULE:CN=(.*",
        "DEFAULT DEFAULT",
        "DEFAULT," * 10_000,
    ],
)
def test_11_wrong_rules_name_the_key(rules: str) -> None:
    with pytest.raises(BadSecuritySetting, match=r"^ssl\.principal\.mapping\.rules: "):
        MappingRules.parse(rules)


@pytest.mark.parametrize("pattern", [r"CN=(a)\1", "CN=(?=a).*", "CN=(?<!x)a", "CN=(", "CN=a++b"])
def test_11_what_re2_cannot_do_is_a_wrong_setting(pattern: str) -> None:
    with pytest.raises(BadSecuritySetting, match=r"RE2 refuses .* \((?!b')"):
        MappingRules.parse(f"RULE:{pattern}/x/")


def test_11_a_result_that_is_no_name_counts_as_no_match() -> None:
    rules = MappingRules.parse("RULE:CN=(.*)/$1/,DEFAULT")
    assert rules.apply("CN=") is None
    assert rules.apply("CN=" + "a" * 256) is None
    assert rules.apply("CN=a\x00b") is None


def test_11_a_hostile_pattern_takes_linear_time() -> None:
    rules = MappingRules.parse("RULE:(a*)*b/x/")
    assert rules.apply("a" * 100_000) is None  # hours in Java


@pytest.mark.parametrize("name", ["", "a" * 256, "a\nb", "a\x00", "\x7f", "\x85"])
def test_names_that_nobody_can_have(name: str) -> None:
    with pytest.raises(BadPrincipal):
        check_name(name)


def test_principals_are_printed_and_parsed() -> None:
    assert str(Principal("alice")) == "User:alice"
    assert Principal.parse("User:a:b") == Principal("a:b")
    assert Principal.parse("User:*") == Principal("*")
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert pickle.loads(pickle.dumps(ANONYMOUS)) == ANONYMOUS
    for wrong in ("alice", ":alice", "User:", "", "User:a\nb"):
        with pytest.raises(BadPrincipal):
            Principal.parse(wrong)


def test_10_text_that_is_not_utf8_is_refused() -> None:
    der = KNOWN["CN=alice,OU=billing,O=Example"].replace(b"alice", b"al\xefce")
    with pytest.raises(UnreadableCertificate):
        subject_of(der)
