"""What clients send: bodies and query strings as values. Whatever is wrong is named. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs

from ottla.registry.errors import Code, RegistryError
from ottla.registry.records import MAX_INT
from ottla.registry.state import COMPATIBILITY, GROUP, MODES, NORMALIZE
from ottla.schemas.compatibility import Level
from ottla.schemas.model import MAX_REFERENCES, Kind, Reference, Schema

if TYPE_CHECKING:
    from ottla.http.messages import Request

V1: Final = "application/vnd.schemaregistry.v1+json"
MEDIA_TYPES: Final = (V1, "application/vnd.schemaregistry+json", "application/json")
NOT_KEPT: Final = (
    "alias",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
    "validateFields",
)
"""Settings of other registries. To take them and do nothing would mislead."""
MAX_PAGE: Final = 100_000
"""Items of one list; the rest is asked for with `offset`."""


class Query:
    """The query string of a request."""

    def __init__(self, text: str) -> None:
        self._values = parse_qs(text, keep_blank_values=True, max_num_fields=100)

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, [default])[-1]

    def texts(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        if not text:
            return default
        if not is_number(text.removeprefix("-")):
            raise RegistryError(Code.BAD_REQUEST, f"{name}={text[:40]} is no whole number")
        return int(text)

    def page(self) -> tuple[int, int]:
        """`offset` and `limit`; a negative limit is none."""
        limit = self.number("limit", -1)
        return max(0, self.number("offset", 0)), MAX_PAGE if limit < 0 else min(limit, MAX_PAGE)


class Posted(NamedTuple):
    """A schema that is to be registered, looked up or compared."""

    schema: Schema
    id: int | None
    version: int | None


def query_of(request: Request) -> Query:
    try:
        return Query(request.query)
    except ValueError:
        raise RegistryError(Code.BAD_REQUEST, "the query string has too many fields") from None


def json_of(request: Request) -> dict[str, Any]:
    """The body, which is an object."""
    kind = request.headers.get("content-type", V1).partition(";")[0].strip().lower()
    if kind not in MEDIA_TYPES:
        raise RegistryError(
            Code.WRONG_MEDIA_TYPE, f"{kind[:80]} is none of {', '.join(MEDIA_TYPES)}"
        )
    try:
        found = json.loads(request.body)
        if b"\\u" in request.body:  # half a character can be named, and not be written
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise RegistryError(Code.BAD_REQUEST, "the body is not JSON in UTF-8") from None
    if not isinstance(found, dict):
        raise RegistryError(Code.BAD_REQUEST, "the body is not a JSON object")
    return found


def posted(request: Request) -> Posted:
    body = json_of(request)
    text = body.get("schema")
    if not isinstance(text, str) or not text:
        raise _invalid('"schema" is not there, or is not a text')
    try:
        kind = Kind(body.get("schemaType") or Kind.AVRO)
    except ValueError:
        given = str(body["schemaType"])[:40]
        raise _invalid(f'"schemaType" {given} is none of {", ".join(Kind)}') from None
    metadata, rules = body.get("metadata"), body.get("ruleSet")
    if not isinstance(metadata, dict | None) or not isinstance(rules, dict | None):
        raise _invalid('"metadata" and "ruleSet" are objects, or are left out')
    schema = Schema(kind, text, _references(body.get("references")), metadata, rules)
    return Posted(schema, _number(body, "id"), _number(body, "version"))


def _references(given: object) -> tuple[Reference, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MAX_REFERENCES:
        raise _invalid(f'"references" is a list of at most {MAX_REFERENCES}')
    found = []
    for one in given:
        match one:
            case {"name": str(name), "subject": str(subject), "version": int(version)}:
                found.append(Reference(name, subject, version))
            case _:
                raise _invalid("a reference has name, subject and version")
    return tuple(found)


def _number(body: dict[str, Any], name: str) -> int | None:
    given = body.get(name)
    if given is None or given in (-1, 0):
        return None
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MAX_INT:
        raise _invalid(f'"{name}" is a number from 1 to {MAX_INT}')
    return given


def version_number(text: str) -> int | None:
    """A version of a path; None is the latest."""
    if text in ("latest", "-1"):
        return None
    if not is_number(text) or not 1 <= int(text) <= MAX_INT:
        raise RegistryError(
            Code.INVALID_VERSION, f"{text[:40]} is no version: give a number from 1 on, or latest"
        )
    return int(text)


def is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_INT))


def schema_id(text: str) -> int:
    """An id of a path; one that cannot be is one that does not exist."""
    if is_number(text):
        return int(text)
    raise RegistryError(Code.NO_SCHEMA, f"there is no schema with the id {text[:40]}")


def settings(request: Request) -> dict[str, Any]:
    """Of `PUT /config`."""
    body = json_of(request)
    found: dict[str, Any] = {}
    level = body.get("compatibility") or body.get(COMPATIBILITY)
    if level is not None:
        if not isinstance(level, str) or level.upper() not in tuple(Level):
            raise RegistryError(
                Code.INVALID_LEVEL,
                f"{str(level)[:40]} is no level: give one of {', '.join(Level)}",
            )
        found[COMPATIBILITY] = level.upper()
    for name, kind in ((NORMALIZE, bool), (GROUP, str)):
        if (value := body.get(name)) is not None:
            if not isinstance(value, kind):
                raise RegistryError(Code.INVALID_LEVEL, f'"{name}" has a wrong type')
            found[name] = value
    for name in NOT_KEPT:
        if body.get(name) is not None:
            raise RegistryError(Code.INVALID_LEVEL, f'"{name}" is not supported')
    if not found:
        raise RegistryError(Code.INVALID_LEVEL, '"compatibility" is not there')
    return found


def mode(request: Request) -> str:
    given = json_of(request).get("mode")
    if not isinstance(given, str) or given.upper() not in MODES:
        raise RegistryError(
            Code.INVALID_MODE, f"{str(given)[:40]} is no mode: give one of {', '.join(MODES)}"
        )
    return given.upper()


def _invalid(message: str) -> RegistryError:
    return RegistryError(Code.INVALID_SCHEMA, message)
