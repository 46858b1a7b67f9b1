"""Users, tokens, attempts and logins, without a server."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from ottla.console import accounts
from ottla.console.accounts import (
    Cost,
    Hashed,
    Role,
    add_token,
    add_user,
    read_tokens,
    read_users,
)
from ottla.console.attempts import MOST, SECONDS, Attempts
from ottla.console.login import LOGIN_SECONDS, Logins, Proxies
from ottla.console.settings import BadSetting

if TYPE_CHECKING:
    from pathlib import Path

CHEAP = Cost(16, 1, 1)
NOW = datetime(2026, 11, 16, tzinfo=UTC)
KEYS = (("account", "anna"), ("address", "192.0.2.1"))


def test_a_password_is_kept_as_a_hash() -> None:
    made = Hashed.of("geheim", cost=CHEAP)
    assert made.matches("geheim")
    assert not made.matches("Geheim")
    assert "geheim" not in str(made)
    again = Hashed.parse(str(made))
    assert again == made
    assert again.matches("geheim")
    assert Hashed.of("geheim", cost=CHEAP) != made
    assert "salt" not in repr(made)


@pytest.mark.parametrize(
    "text",
    [
        "geheim",
        "scrypt:16:1:c2FsdA==:aGFzaA==",
        "scrypt:15:1:1:c2FsdA==:aGFzaA==",
        "scrypt:16:0:1:c2FsdA==:aGFzaA==",
        "scrypt:16:1:17:c2FsdA==:aGFzaA==",
        f"scrypt:{1 << 20}:8:1:c2FsdA==:aGFzaA==",
        "scrypt:16:1:1:x:aGFzaA==",
    ],
)
def test_a_hash_that_is_none_or_costs_too_much_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"scrypt|base64"):
        Hashed.parse(text)


def test_users_are_added_and_changed(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    hostile = 'x"]\nrole = "admin'
    assert add_user(file, "anna", Role.ADMIN, Hashed.of("one", cost=CHEAP))
    assert add_user(file, "bob ü", Role.VIEWER, Hashed.of("two", cost=CHEAP))
    assert not add_user(file, "anna", Role.OPERATOR, Hashed.of("three", cost=CHEAP))
    with pytest.raises(BadSetting, match="printable"):
        add_user(file, hostile, Role.ADMIN, Hashed.of("x", cost=CHEAP))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    users = read_users(file)
    assert users.check("anna", "three") is Role.OPERATOR
    assert users.check("anna", "one") is None
    assert users.check("bob ü", "two") is Role.VIEWER
    assert users.check("nobody", "two") is None
    assert users.role_of("nobody") is None


def test_case_31_an_unknown_user_costs_what_a_known_one_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "users.toml"
    add_user(file, "anna", Role.ADMIN, Hashed.of("one", cost=CHEAP))
    users = read_users(file)
    costs = []
    scrypt = accounts._scrypt

    def counted(password: str, salt: bytes, cost: Cost) -> bytes:
        costs.append((len(salt), cost))
        return scrypt(password, salt, cost)

    monkeypatch.setattr(accounts, "_scrypt", counted)
    for name, password in (("anna", "one"), ("anna", "two"), ("nobody", "one")):
        users.check(name, password)
    assert len(costs) == 3
    assert len(set(costs)) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[users.anna]\nrole = "boss"', "role is one of viewer, operator, admin"),
        ('[users.anna]\nrole = "admin"\npasword = "x"', "unknown key 'pasword'"),
        ('[users.anna]\nrole = "admin"\npassword = "plain"', "a password is scrypt"),
        ('[user.anna]\nrole = "admin"', r"\[users.anna\]"),
        ("users = 3", r"\[users.anna\]"),
        ("[users.anna", "is not TOML"),
        ('[users.""]\nrole = "admin"', "printable characters"),
    ],
)
def test_a_wrong_users_file_is_an_error_without_its_hashes(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "users.toml"
    file.write_text(text)
    with pytest.raises(BadSetting, match=said):
        read_users(file)


def test_tokens_expire(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    add_token(file, "prometheus", Role.VIEWER, "long-and-random", NOW)
    add_token(file, "script", Role.ADMIN, "another", NOW + timedelta(days=1))
    assert "long-and-random" not in file.read_text()
    tokens = read_tokens(file)
    found = tokens.find("long-and-random", NOW - timedelta(seconds=1))
    assert found is not None
    assert (found.name, found.role) == ("prometheus", Role.VIEWER)
    assert tokens.find("long-and-random", NOW) is None
    assert tokens.find("other", NOW) is None
    assert tokens.find("another", NOW) is not None
    file.write_text('[tokens.x]\nrole = "viewer"\nsha256 = "abc"\n')
    with pytest.raises(BadSetting, match="64 hexadecimal"):
        read_tokens(file)


def test_case_31_five_failures_a_minute() -> None:
    attempts = Attempts()
    for number in range(MOST):
        assert attempts.wait(KEYS, float(number)) == 0
        attempts.begin(KEYS, float(number))
    assert attempts.wait(KEYS, 5.0) == SECONDS - 5
    assert attempts.wait([("account", "anna"), ("address", "other")], 5.0) > 0
    assert attempts.wait([("account", "bob"), ("address", "192.0.2.1")], 5.0) > 0
    assert attempts.wait([("account", "bob"), ("address", "other")], 5.0) == 0
    assert attempts.wait(KEYS, SECONDS) == 0


def test_attempts_that_succeed_count_for_nothing_and_memory_is_bounded() -> None:
    attempts = Attempts(keys=10)
    for number in range(20):
        attempts.begin(KEYS, float(number))
        attempts.succeeded(KEYS, float(number))
    assert len(attempts) == 0
    for number in range(20):
        attempts.begin([("address", str(number))], 0.0)
    assert len(attempts) == 10


def test_many_attempts_at_once_get_no_further() -> None:
    attempts = Attempts()
    begun = 0
    for _ in range(100):
        if attempts.wait(KEYS, 1.0) == 0:
            attempts.begin(KEYS, 1.0)
            begun += 1
    assert begun == MOST


def test_logins_end_by_time_and_number() -> None:
    logins = Logins(most=2)
    ended: list[str] = []
    logins.on_end = ended.append
    first, second = logins.open("anna", 0.0), logins.open("bob", 1.0)
    assert logins.find(first, 2.0) == ("anna", None)
    third = logins.open("carl", 3.0)
    assert ended == [second]  # the first was used after it
    assert logins.find(second, 4.0) is None
    assert logins.find(first, LOGIN_SECONDS) is None
    logins.expire(LOGIN_SECONDS + 3.0)
    assert sorted(ended) == sorted([second, first, third])
    assert len(logins) == 0


def test_proxies_are_addresses_and_networks() -> None:
    proxies = Proxies(["10.0.0.5", "192.168.0.0/24", "::1"])
    for host in ("10.0.0.5", "192.168.0.77", "::1", "::ffff:10.0.0.5"):
        assert host in proxies
    for host in ("10.0.0.6", "192.168.1.1", "", "testclient", "127.0.0.1"):
        assert host not in proxies
