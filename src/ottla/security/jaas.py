"""`sasl.jaas.config`, read by a fixed grammar: nothing is loaded by a name in it.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";

The three login modules of Kafka are the only names that are known. Java would load any class named
here, and run it: JndiLoginModule and LdapLoginModule were the way in of CVE-2023-25194,
CVE-2025-27818 and CVE-2025-27819. Values are text: `${file:...}` and `${env:...}` stay as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from ottla.errors import OttlaError

Module: TypeAlias = Literal["plain", "scram", "oauthbearer"]

_PACKAGE: Final = "org.apache.kafka.common.security."
MODULES: Final[dict[str, Module]] = {
    f"{_PACKAGE}plain.PlainLoginModule": "plain",
    f"{_PACKAGE}scram.ScramLoginModule": "scram",
    f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule": "oauthbearer",
}
MAX_CHARACTERS: Final = 64 * 1024
"""A listener may name many users of PLAIN here."""
_USER_PREFIX: Final = "user_"

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<quoted>"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')
      | (?P<word>[A-Za-z0-9_.$/+@:-]+)
      | (?P<mark>[=;])
    )""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(.)")
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


class BadJaas(OttlaError, ValueError):
    """A `sasl.jaas.config` that is not understood. The text says what is wrong, not the value."""


@dataclass(frozen=True, slots=True)
class JaasConfig:
    """The login module and its options."""

    module: Module
    options: dict[str, str] = field(repr=False)

    @property
    def username(self) -> str | None:
        """Who logs in, where this is a client's."""
        return self.options.get("username")

    @property
    def password(self) -> str | None:
        """With which password, where this is a client's."""
        return self.options.get("password")

    @property
    def users(self) -> dict[str, str]:
        """Passwords by name, where this is a PLAIN listener's: `user_NAME="..."`."""
        return {
            key.removeprefix(_USER_PREFIX): value
            for key, value in self.options.items()
            if key.startswith(_USER_PREFIX)
        }


def parse_jaas(text: str) -> JaasConfig:
    """The value of `sasl.jaas.config`; `BadJaas` says what is wrong."""
    tokens = _tokens(text)
    name = tokens[0].text if tokens else ""
    module = MODULES.get(name)
    if module is None:
        known = ", ".join(one.rpartition(".")[2] for one in MODULES)
        shown = name if re.fullmatch(r"[A-Za-z0-9_.$-]{1,200}", name) else "its first word"
        raise BadJaas(
            f"sasl.jaas.config: {shown} is not a known login module; only {known} of {_PACKAGE}* "
            "are, by their full names, and no classes are loaded"
        )
    if tokens[1:2] != [_REQUIRED]:
        raise BadJaas("sasl.jaas.config: expected 'required' after the login module")
    if tokens[-1] != _END or _END in tokens[:-1]:
        raise BadJaas("sasl.jaas.config: expected one login module with a ; at the end")
    return JaasConfig(module, _options(tokens[2:-1]))


class _Token(NamedTuple):
    kind: str
    text: str


_REQUIRED: Final = _Token("word", "required")
_EQUALS: Final = _Token("mark", "=")
_END: Final = _Token("mark", ";")


def _options(tokens: list[_Token]) -> dict[str, str]:
    options: dict[str, str] = {}
    for at in range(0, len(tokens), 3):
        key, *rest = tokens[at : at + 3]
        if key.kind != "word" or rest[:1] != [_EQUALS] or len(rest) != 2 or rest[1] == _EQUALS:
            raise BadJaas('sasl.jaas.config: expected key="value" pairs after required')
        if key.text in options:
            raise BadJaas(f"sasl.jaas.config: {key.text} is given twice")
        options[key.text] = rest[1].text
    return options


def _tokens(text: str) -> list[_Token]:
    if len(text) > MAX_CHARACTERS:
        raise BadJaas(f"sasl.jaas.config: longer than {MAX_CHARACTERS} characters")
    found: list[_Token] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        token = _TOKEN.match(text, at)
        if token is None:
            # Without the text: it may be the middle of a password.
            raise BadJaas(
                f"sasl.jaas.config: cannot be read at character {at + 1}; put values in double "
                "quotes, with a backslash before a quote or a backslash in them"
            )
        at = token.end()
        kind = str(token.lastgroup)
        if kind == "quoted":
            found.append(_Token(kind, _ESCAPE.sub(_plain, token[kind][1:-1])))
        else:
            found.append(_Token(kind, token[kind]))
    return found


def _plain(escape: re.Match[str]) -> str:
    return _CONTROLS.get(escape[1], escape[1])
