"""Who asks: the state of logins, people whom a proxy names, tokens of programs. Pure.

- `none`: everybody may do what `--write` allows.
- `password`: the name and password of the users file, in a form.
- `proxy`: a header names the person. It counts only if it comes from one of `trusted_proxies`, and
  only once: a second one may be the visitor's own.
- `sasl`: the name and password of a user of the cluster, in a form. The brokers decide what that
  user may do.

The cookie of a login is random and says nothing; what it stands for is kept here. It ends after
`LOGIN_SECONDS`, by logging out, with the user's entry in the users file, and when the console ends.
"""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.console.accounts import Role, Tokens, Users, is_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from starlette.requests import HTTPConnection

    from ottla.console.settings import Settings

LOGIN_SECONDS: Final = 12 * 3600.0
MAX_LOGINS: Final = 1_000
"""The one that was used longest ago ends for a further one."""
PERSON: Final = "ottla.person"
"""Where the door puts the person, in the request's scope."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who asks. Without a name: anybody."""

    name: str
    role: Role
    login: str = ""
    """The cookie of the login, if there is one."""
    has_token: bool = False

    @property
    def principal(self) -> str:
        """As audit lines name somebody."""
        return f"User:{self.name}" if self.name else "console"


ANYBODY: Final = Person("", Role.ADMIN)
NOBODY: Final = Person("", Role.VIEWER)


def person_of(request: HTTPConnection) -> Person:
    """Who asks, as the door found out."""
    found: Person = request.scope[PERSON]
    return found


@dataclass(slots=True)
class _Login:
    name: str
    until: float
    role: Role | None
    """None: the users file says it."""


class Logins:
    """Logins by their cookies. Time is an argument."""

    def __init__(self, most: int = MAX_LOGINS) -> None:
        self._logins: dict[str, _Login] = {}
        self._most = most
        self.on_end: Callable[[str], None] | None = None
        """Called with the cookie of a login that is over."""

    def __len__(self) -> int:
        return len(self._logins)

    def open(self, name: str, now: float, role: Role | None = None) -> str:
        """The cookie of a new login."""
        cookie = secrets.token_urlsafe(32)
        self._logins[cookie] = _Login(name, now + LOGIN_SECONDS, role)
        while len(self._logins) > self._most:
            self.close(next(iter(self._logins)))
        return cookie

    def find(self, cookie: str, now: float) -> tuple[str, Role | None] | None:
        """The name and the role, if it has one of its own."""
        found = self._logins.get(cookie)
        if found is None:
            return None
        if found.until <= now:
            self.close(cookie)
            return None
        # The one that was used last is the last to go.
        self._logins[cookie] = self._logins.pop(cookie)
        return found.name, found.role

    def close(self, cookie: str) -> None:
        if self._logins.pop(cookie, None) is not None and self.on_end is not None:
            self.on_end(cookie)

    def close_of(self, name: str) -> None:
        """All logins of a user."""
        for cookie in [key for key, one in self._logins.items() if one.name == name]:
            self.close(cookie)

    def expire(self, now: float) -> None:
        """End those whose time is over."""
        for cookie in [key for key, one in self._logins.items() if one.until <= now]:
            self.close(cookie)

    def names(self) -> set[str]:
        return {one.name for one in self._logins.values()}


class Proxies:
    """Addresses whose headers count."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(one, strict=False) for one in addresses]

    def __contains__(self, host: str) -> bool:
        try:
            found = ipaddress.ip_address(host)
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in one for one in self._networks)

    def address(self, request: HTTPConnection) -> str:
        """Where a request comes from: what the nearest proxy that is not ours had said."""
        host = "" if request.client is None else request.client.host
        if host not in self:
            return host
        said = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
        for one in reversed([part.strip() for part in said if part.strip()]):
            if not _is_address(one):
                return host
            if one not in self:
                return one
        return host


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class Doorkeeper:
    """Says who asks; `users` and `tokens` are replaced when their files change."""

    def __init__(self, settings: Settings, users: Users, tokens: Tokens) -> None:
        self.how = "none" if settings.auth == "auto" else settings.auth
        self.users = users
        self.tokens = tokens
        self.proxies = Proxies(settings.trusted_proxies)
        self.logins = Logins()
        self._header = settings.proxy_user_header

    @property
    def has_form(self) -> bool:
        return self.how in ("password", "sasl")

    def person(
        self, request: HTTPConnection, cookie: str | None, now: float, wall: datetime
    ) -> Person | None:
        """Who asks; None: nobody whom we know."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            known = self.tokens.find(token.strip(), wall)
            return None if known is None else Person(known.name, known.role, has_token=True)
        if self.how == "none":
            return ANYBODY
        if self.how == "proxy":
            return self._named(request)
        found = None if cookie is None else self.logins.find(cookie, now)
        if found is None or cookie is None:
            return None
        name, own = found
        role = self.users.role_of(name) if own is None else own
        return None if role is None else Person(name, role, cookie)

    def _named(self, request: HTTPConnection) -> Person | None:
        host = "" if request.client is None else request.client.host
        names = request.headers.getlist(self._header)
        if host not in self.proxies or len(names) != 1 or not is_name(names[0]):
            return None
        # The proxy has let them in: somebody without an entry reads.
        return Person(names[0], self.users.role_of(names[0]) or Role.VIEWER)

    def replace_users(self, users: Users) -> None:
        """Take a changed file: logins of users who are gone or have another password end."""
        before, self.users = self.users, users
        for name in self.logins.names():
            if self.how == "password" and not users.has_same(before, name):
                self.logins.close_of(name)
