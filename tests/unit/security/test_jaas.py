"""`sasl.jaas.config`. Numbers are those of the acceptance cases in the specification."""

from __future__ import annotations

import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.jaas import BadJaas, parse_jaas

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "password"),
    [
        (f'{SCRAM} required username="u" password="p";', "p"),
        (f'  {SCRAM}\n required\n  username="u"\n  password="p" ;  ', "p"),
        (f"{SCRAM} required username='u' password='p';", "p"),
        (f"{SCRAM} required username=u password=p;", "p"),
        (f'{SCRAM} required username="u" password="a\\"b\\\\c; = required";', 'a"b\\c; = required'),
        (f'{SCRAM} required username="u" password="=";', "="),
        (f'{SCRAM} required username="u" password=";";', ";"),
        (f'{SCRAM} required username="u" password="";', ""),
        (f'{SCRAM} required username = "u" password ="${{env:HOME}}";', "${env:HOME}"),
        (
            f'{SCRAM} required username="u" password="${{file:/etc/passwd:root}}";',
            "${file:/etc/passwd:root}",
        ),
    ],
)
def test_what_is_understood_and_stays_text_case_86(text: str, password: str) -> None:
    found = parse_jaas(text)
    assert (found.module, found.username, found.password) == ("scram", "u", password)
    assert repr(found) == "JaasConfig(module='scram')"


def test_users_of_plain() -> None:
    found = parse_jaas(f'{PLAIN} required username="a" password="x" user_a="x" user_b.c="y";')
    assert found.users == {"a": "x", "b.c": "y"}


@pytest.mark.parametrize(
    "module",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "com.sun.security.auth.module.KeyStoreLoginModule",
        "com.sun.security.auth.module.Krb5LoginModule",
        "org.apache.kafka.common.security.plain.plainloginmodule",
        "PlainLoginModule",
        "antigravity",
    ],
)
def test_other_modules_are_refused_case_85(module: str) -> None:
    before = set(sys.modules)
    text = f'{module} required userProvider="ldap://127.0.0.1:1389/x" useFirstPass="true";'
    with pytest.raises(BadJaas, match=f"{module} is not a known login module") as failure:
        parse_jaas(text)
    assert "1389" not in str(failure.value)
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "its first word is not a known"),
        (f"{SCRAM}", "expected 'required'"),
        (f'{SCRAM} "required" username="u";', "expected 'required'"),
        (f"{SCRAM} optional;", "expected 'required'"),
        (f'{SCRAM} required password="canary"', "a ; at the end"),
        (f'{SCRAM} required; {PLAIN} required password="canary";', "a ; at the end"),
        (f"{SCRAM} required password;", "pairs after required"),
        (f"{SCRAM} required password=;", "pairs after required"),
        (f"{SCRAM} required password==canary;", "pairs after required"),
        (f'{SCRAM} required "password"="canary";', "pairs after required"),
        (f'{SCRAM} required a="canary" a="canary";', "a is given twice"),
        (f'{SCRAM} required password="canary;', "cannot be read at character"),
        (f"{SCRAM} required password=canary!;", "cannot be read at character"),
        (" " * 70_000, "longer than 65536"),
    ],
)
def test_what_is_not_understood_is_not_quoted(text: str, said: str) -> None:
    with pytest.raises(BadJaas, match=said) as failure:
        parse_jaas(text)
    assert "canary" not in str(failure.value)


@given(st.text(max_size=80))
def test_any_text_is_refused_or_read(text: str) -> None:
    for whole in (text, f"{SCRAM} required {text}"):
        with suppress(BadJaas):
            parse_jaas(whole)


@given(st.text(st.characters(exclude_characters="\r\n")))
def test_any_value_in_quotes_is_read_as_it_is(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'{SCRAM} required password="{quoted}";').password == value
