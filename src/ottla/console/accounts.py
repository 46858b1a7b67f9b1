"""Who may use the console: roles, the users file and the tokens file. Pure but for reading files.

    [users.anna]
    role = "admin"
    password = "scrypt:16384:8:5:SALT:HASH"

    [tokens.prometheus]
    role = "viewer"
    sha256 = "9f86d081..."
    expires = 2027-01-31T00:00:00Z

Passwords are hashed with scrypt of the standard library. Tokens are long and random, so that one
round of SHA-256 is enough. `ottla console user add` and `ottla console token add` write the files.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets
import tomllib
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from ottla.console.settings import BadSetting

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_NAME: Final = 255
"""Characters of a user's name, as in Kafka."""
MAX_PASSWORD: Final = 1024
"""Bytes: a longer one is not hashed."""
MAX_ACCOUNTS: Final = 10_000
MAX_FILE_BYTES: Final = 8 << 20


class Role(IntEnum):
    """What somebody may do; a later one may do what those before it may."""

    VIEWER = 1
    """Reads."""
    OPERATOR = 2
    """Produces records, redrives letters, resets offsets, fences producers."""
    ADMIN = 3
    """Changes topics and configs, deletes."""

    @property
    def word(self) -> str:
        return self.name.lower()


ROLES: Final = {one.word: one for one in Role}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of scrypt: 16 MiB of memory, a fifth of a second."""

    n: int = 1 << 14
    r: int = 8
    p: int = 5


COST: Final = Cost()
SALT_BYTES: Final = 16
MAX_MEMORY: Final = 64 << 20
"""A users file cannot make the console hash with more memory than this."""


@dataclass(frozen=True, slots=True)
class Hashed:
    """A password as it is stored."""

    cost: Cost
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    @classmethod
    def of(cls, password: str, salt: bytes | None = None, cost: Cost = COST) -> Hashed:
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        return cls(cost, salt, _scrypt(password, salt, cost))

    @classmethod
    def parse(cls, text: str) -> Hashed:
        """Raises `ValueError`."""
        parts = text.split(":")
        if len(parts) != 6 or parts[0] != "scrypt":
            raise ValueError("a password is scrypt:N:r:p:SALT:HASH")
        n, r, p = (int(one) for one in parts[1:4])
        if not (n > 1 and n & (n - 1) == 0 and r > 0 and 0 < p <= 16):
            raise ValueError("scrypt's N is a power of two, r and p are positive, p at most 16")
        if 128 * n * r > MAX_MEMORY:
            raise ValueError(f"scrypt would need more than {MAX_MEMORY >> 20} MiB")
        try:
            return cls(Cost(n, r, p), _decoded(parts[4]), _decoded(parts[5]))
        except binascii.Error as error:
            raise ValueError("salt and hash are base64") from error

    def __str__(self) -> str:
        numbers = (self.cost.n, self.cost.r, self.cost.p)
        return ":".join(("scrypt", *map(str, numbers), _encoded(self.salt), _encoded(self.digest)))

    def matches(self, password: str) -> bool:
        """Takes a fifth of a second of a processor: never on the event loop."""
        return hmac.compare_digest(_scrypt(password, self.salt, self.cost), self.digest)


def _scrypt(password: str, salt: bytes, cost: Cost) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"),
        salt=salt,
        n=cost.n,
        r=cost.r,
        p=cost.p,
        maxmem=2 * MAX_MEMORY,
        dklen=32,
    )


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text)


@dataclass(frozen=True, slots=True)
class User:
    """`password` is None for people whom a proxy lets in."""

    role: Role
    password: Hashed | None = field(default=None, repr=False)


class Users:
    """The users file."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = users
        costs = [one.password.cost for one in users.values() if one.password is not None]
        # Somebody who is not known takes as long as somebody who is.
        cost = costs[0] if costs else COST
        self._nobody = Hashed(cost, secrets.token_bytes(SALT_BYTES), secrets.token_bytes(32))

    @property
    def has_passwords(self) -> bool:
        return any(one.password is not None for one in self._users.values())

    def role_of(self, name: str) -> Role | None:
        found = self._users.get(name)
        return None if found is None else found.role

    def has_same(self, other: Users, name: str) -> bool:
        """Whether both know the user by the same password."""
        mine, theirs = self._users.get(name), other._users.get(name)
        return mine is not None and theirs is not None and mine.password == theirs.password

    def check(self, name: str, password: str) -> Role | None:
        """The role of the user if the password is right; takes the same time for unknown ones."""
        user = self._users.get(name)
        stored = None if user is None else user.password
        is_right = (self._nobody if stored is None else stored).matches(password)
        return user.role if user is not None and stored is not None and is_right else None


def read_users(file: Path) -> Users:
    """Raises `BadSetting` with what to do."""
    found = {}
    for name, table in _tables(file, "users").items():
        _only(table, ("role", "password"), f"{file}, user {name!r:.80}")
        text = table.get("password")
        try:
            password = None if text is None else Hashed.parse(str(text))
        except ValueError as error:
            raise BadSetting(f"{file}, user {name!r:.80}: {error}") from None
        found[_checked(name, file)] = User(_role(table, f"{file}, user {name!r:.80}"), password)
    return Users(found)


@dataclass(frozen=True, slots=True)
class Token:
    """A token by the name of the program that has it."""

    name: str
    role: Role
    expires: datetime | None


class Tokens:
    """The tokens file."""

    def __init__(self, tokens: Mapping[bytes, Token]) -> None:
        self._tokens = tokens

    def find(self, token: str, now: datetime) -> Token | None:
        """Whose it is, unless it has expired."""
        # A look-up by the hash tells nothing about tokens that are near.
        found = self._tokens.get(hashlib.sha256(token.encode("utf-8", "replace")).digest())
        if found is None or (found.expires is not None and found.expires <= now):
            return None
        return found


def read_tokens(file: Path) -> Tokens:
    """Raises `BadSetting` with what to do."""
    found = {}
    for name, table in _tables(file, "tokens").items():
        where = f"{file}, token {name!r:.80}"
        _only(table, ("role", "sha256", "expires"), where)
        try:
            digest = bytes.fromhex(str(table.get("sha256", "")))
        except ValueError:
            digest = b""
        if len(digest) != 32:
            raise BadSetting(f"{where}: sha256 is 64 hexadecimal digits")
        expires = table.get("expires")
        if isinstance(expires, date) and not isinstance(expires, datetime):
            expires = datetime(expires.year, expires.month, expires.day, tzinfo=UTC)
        if expires is not None and not isinstance(expires, datetime):
            raise BadSetting(f"{where}: expires is a time such as 2027-01-31T00:00:00Z")
        if expires is not None and expires.tzinfo is None:
            expires = expires.replace(tzinfo=UTC)
        found[digest] = Token(_checked(name, file), _role(table, where), expires)
    return Tokens(found)


def _tables(file: Path, word: str) -> dict[str, dict[str, Any]]:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise BadSetting(f"{file} is longer than {MAX_FILE_BYTES} bytes")
        read = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise BadSetting(f"cannot read {file}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # Without its message, which may quote a hash.
        raise BadSetting(f"{file} is not TOML") from error
    tables = read.pop(word, {})
    if read or not isinstance(tables, dict):
        raise BadSetting(f"{file}: write a table such as [{word}.anna] for each")
    if len(tables) > MAX_ACCOUNTS:
        raise BadSetting(f"{file}: at most {MAX_ACCOUNTS:,} {word}")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise BadSetting(f"{file}: [{word}.{name:.80}] is a table")
    return tables


def _only(table: Mapping[str, object], keys: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in keys:
            raise BadSetting(f"{where}: unknown key {key!r:.80}; known are {', '.join(keys)}")


def _role(table: Mapping[str, object], where: str) -> Role:
    found = ROLES.get(str(table.get("role", "")))
    if found is None:
        raise BadSetting(f"{where}: role is one of {', '.join(ROLES)}")
    return found


def _checked(name: str, file: Path) -> str:
    if not is_name(name):
        raise BadSetting(f"{file}: a name has 1 to {MAX_NAME} printable characters")
    return name


def is_name(name: str) -> bool:
    """Whether somebody may be called so."""
    return 0 < len(name) <= MAX_NAME and name.isprintable() and name == name.strip()


def add_user(file: Path, name: str, role: Role, password: Hashed) -> bool:
    """Write the user to the file; True if it is a new one. Others stay as they are."""
    entry = {"role": role.word, "password": str(password)}
    return _add(file, "users", name, entry)


def add_token(file: Path, name: str, role: Role, token: str, expires: datetime) -> bool:
    """Write the hash of the token to the file; True if the name is new."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    return _add(file, "tokens", name, {"role": role.word, "sha256": digest, "expires": expires})


def _add(file: Path, word: str, name: str, entry: Mapping[str, str | datetime]) -> bool:
    if not is_name(name):
        raise BadSetting(f"a name has 1 to {MAX_NAME} printable characters, not {name!r:.80}")
    tables = _tables(file, word) if file.exists() else {}
    is_new = name not in tables
    tables[name] = dict(entry)
    lines = []
    for one, table in tables.items():
        lines.append(f"[{word}.{json.dumps(one)}]")
        lines += [f"{key} = {_toml(value)}" for key, value in table.items()]
        lines.append("")
    made = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            stream.write("\n".join(lines))
        made.replace(file)
    except OSError as error:
        raise BadSetting(f"cannot write {file}: {error.strerror or error}") from error
    return is_new


def _toml(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return json.dumps(str(value))
