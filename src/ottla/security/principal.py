"""Who a connection is: `User:name`, also from the subject of a client's certificate.

`subject_of` writes the subject as Java's `X500Principal.getName()` does (RFC 2253), since ACLs and
rules were written for that text: the last RDN first, `,` between RDNs and `+` inside of one, the
keywords below, any other attribute as its OID and `#` with the hex of its DER. It reads the DER
itself: the certificate has been verified, and loading cryptography would hold up the event loop.

`MappingRules` are Kafka's `ssl.principal.mapping.rules`: comma-separated, the first match wins,
`DEFAULT` is the whole name, `RULE:pattern/replacement/[LU]` rewrites it. Differences to Kafka:
patterns run in RE2, so back-references and look-around are refused; the replacement is made once
for the whole name (Java's replaceAll repeats it where a pattern also matches nothing).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.security.errors import BadSecuritySetting, SecurityError

if TYPE_CHECKING:
    from collections.abc import Iterator

USER: Final = "User"
MAX_NAME_LENGTH: Final = 255  # the longest that stores of users take
MAX_RULES_LENGTH: Final = 64 * 1024
MAPPING_KEY: Final = "ssl.principal.mapping.rules"

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""Tags of DER that are text. Java reads all of them as UTF-8, whatever their tag says."""
ESCAPES: Final = str.maketrans({c: f"\\{c}" for c in ',=+<>#;"\\'} | {"\0": "\\00"})

SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_IDENTIFIER: Final = 0x06
VERSION: Final = 0xA0


class BadPrincipal(SecurityError, ValueError):
    """A name that no principal can have."""


class UnreadableCertificate(SecurityError, ValueError):
    """A certificate whose subject cannot be read."""


def check_name(name: str) -> str:
    """The same name; raises `BadPrincipal`. Holds for every source of names."""
    if not name:
        raise BadPrincipal("the name is empty")
    if len(name) > MAX_NAME_LENGTH:
        raise BadPrincipal(f"the name is longer than {MAX_NAME_LENGTH} characters")
    if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in name):
        raise BadPrincipal("the name has a control character")
    return name


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks; printed `User:alice`."""

    name: str
    type: str = USER

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of `Type:name`; raises `BadPrincipal`."""
        kind, separator, name = text.partition(":")
        if not separator or not kind or not name:
            raise BadPrincipal(f"{text!r} is not Type:name, such as User:alice")
        return cls(check_name(name), kind)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("ANONYMOUS")


# -- the subject of a certificate -----------------------------------------------------------------


def subject_of(der: bytes) -> str:
    """The subject of a certificate as RFC 2253 text; raises `UnreadableCertificate`."""
    try:
        return ",".join(reversed([_rdn(rdn) for rdn in _rdns(der)]))
    except (IndexError, UnicodeError, ValueError) as error:
        raise UnreadableCertificate("the subject of the certificate cannot be read") from error


def _rdns(der: bytes) -> Iterator[bytes]:
    _, certificate, _ = _element(memoryview(der), 0, SEQUENCE)
    _, fields, _ = _element(certificate, 0, SEQUENCE)
    at = 0
    # Serial number, algorithm, issuer, validity, and the version where it is told.
    before = 5 if fields[0] == VERSION else 4
    for _ in range(before):
        _, _, at = _element(fields, at)
    _, subject, _ = _element(fields, at, SEQUENCE)
    at = 0
    while at < len(subject):
        _, rdn, at = _element(subject, at, SET)
        yield bytes(rdn)


def _rdn(rdn: bytes) -> str:
    """Its attributes in the order of the certificate."""
    found, at = [], 0
    while at < len(rdn):
        _, attribute, at = _element(memoryview(rdn), at, SEQUENCE)
        _, identifier, behind = _element(attribute, 0, OBJECT_IDENTIFIER)
        tag, value, _ = _element(attribute, behind)
        oid = _oid(identifier)
        keyword = KEYWORDS.get(oid)
        if keyword is None or tag not in TEXTS:
            found.append(f"{keyword or oid}=#{attribute[behind:].hex()}")
        else:
            # Not UTF-8: refused. Java writes U+FFFD, which makes one name of two.
            found.append(f"{keyword}={_escaped(str(value, 'utf-8'))}")
    return "+".join(found)


def _escaped(text: str) -> str:
    inner = text.translate(ESCAPES)
    begun = inner.lstrip(" ")
    middle = begun.rstrip(" ")
    before, behind = len(inner) - len(begun), len(begun) - len(middle)
    return "\\ " * before + middle + "\\ " * behind


def _element(data: memoryview, at: int, wanted: int | None = None) -> tuple[int, memoryview, int]:
    """Tag and content of the DER element at a position, and where the next one begins."""
    tag, length, begin = data[at], data[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(data[begin : begin + count], "big")
        begin += count
    end = begin + length
    if end > len(data) or (wanted is not None and tag != wanted):
        raise ValueError("not the DER of a certificate")
    return tag, data[begin:end], end


def _oid(data: memoryview) -> str:
    numbers, number = [], 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


# -- mapping rules --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: Any
    """Compiled by RE2; None is `DEFAULT`."""
    replacement: tuple[str | int, ...]
    """Texts and numbers of groups."""
    case: str


class MappingRules:
    """Turns a name into the one that ACLs know."""

    __slots__ = ("_rules",)

    def __init__(self, rules: tuple[_Rule, ...]) -> None:
        self._rules = rules

    @classmethod
    def parse(cls, text: str, key: str = MAPPING_KEY) -> MappingRules:
        """Raises `BadSecuritySetting`, which names the key."""
        if len(text) > MAX_RULES_LENGTH:
            raise BadSecuritySetting(key, f"is longer than {MAX_RULES_LENGTH} characters")
        return cls(tuple(_parsed(text, key)))

    def apply(self, name: str) -> str | None:
        """The first match; None if no rule matches, or the result cannot be a name."""
        for rule in self._rules:
            if rule.pattern is None:
                mapped = name
            else:
                found = rule.pattern.fullmatch(name)
                if found is None:
                    continue
                mapped = "".join(
                    part if isinstance(part, str) else found.group(part) or ""
                    for part in rule.replacement
                )
            if rule.case:
                mapped = mapped.lower() if rule.case == "L" else mapped.upper()
            try:
                return check_name(mapped)
            except BadPrincipal:
                return None
        return None


def _parsed(text: str, key: str) -> Iterator[_Rule]:
    at = 0
    while True:
        at = _past_blanks(text, at)
        begin = at
        if text.startswith("DEFAULT", at):
            at += len("DEFAULT")
            yield _Rule(None, (), "")
        elif text.startswith("RULE:", at):
            pattern, at = _until_slash(text, at + len("RULE:"), begin, key)
            replacement, at = _until_slash(text, at, begin, key)
            case = text[at : at + 1] if text[at : at + 1] in ("L", "U") else ""
            at += len(case)
            yield _rule(pattern, replacement, case, key)
        at = _past_blanks(text, at)
        if at == len(text):
            return
        if text[at] != ",":
            raise BadSecuritySetting(
                key,
                f"{text[begin:]!r} does not begin with DEFAULT or RULE:pattern/replacement/[LU]",
            )
        at += 1


def _past_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _until_slash(text: str, at: int, begin: int, key: str) -> tuple[str, int]:
    """A part of a rule with its escapes, and where the next one begins."""
    start = at
    while at < len(text):
        if text[at] == "/":
            return text[start:at], at + 1
        at += 2 if text[at] == "\\" else 1
    raise BadSecuritySetting(
        key, f"{text[begin:]!r} has no end; a rule is RULE:pattern/replacement/[LU]"
    )


def _rule(pattern: str, replacement: str, case: str, key: str) -> _Rule:
    import re2

    options = re2.Options()
    options.log_errors = False  # the message below says it
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        (why,) = error.args
        said = why.decode() if isinstance(why, bytes) else why
        raise BadSecuritySetting(
            key,
            f"RE2 refuses {pattern!r} ({said}); it has no back-references and no look-around",
        ) from error
    return _Rule(compiled, tuple(_template(replacement, compiled.groups, key)), case)


def _template(replacement: str, groups: int, key: str) -> Iterator[str | int]:
    """As Java reads it: `$12` is the first group and a 2 where there are fewer than 12."""
    at = 0
    while at < len(replacement):
        c = replacement[at]
        if c == "\\":
            yield replacement[at + 1 : at + 2]
            at += 2
        elif c == "$":
            digits = at + 1
            if not replacement[digits : digits + 1].isdecimal():
                raise BadSecuritySetting(
                    key, f"{replacement!r} has a $ without the number of a group; write \\$ for one"
                )
            group = int(replacement[digits])
            at = digits + 1
            if group > groups:
                yield f"${group}"
                continue
            while replacement[at : at + 1].isdecimal():
                longer = group * 10 + int(replacement[at])
                if longer > groups:
                    break
                group, at = longer, at + 1
            yield group
        else:
            yield c
            at += 1
