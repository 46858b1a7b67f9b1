"""`ottla quota ...`: how much users, clients and addresses may use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    with_admin,
)
from ottla.cli.output import print_json, print_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.cli.output import Cell
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.quotas import QuotaEntity
    from ottla.client.admin.types import QuotaDescription

app = typer.Typer(help="Set, list and delete quotas.", no_args_is_help=True)

Entity: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ENTITY",
        help="user=NAME, client=NAME, user=NAME,client=NAME or ip=ADDRESS; a word without = is "
        "the default of all: user, client or ip. Quote a name with a comma: "
        "'user=\"CN=alice,OU=billing\"'.",
    ),
]

KINDS: Final[dict[str, QuotaEntity]] = {"user": "user", "client": "client-id", "ip": "ip"}
KEYS: Final = {
    "produce": "producer_byte_rate",
    "fetch": "consumer_byte_rate",
    "requests": "request_percentage",
    "mutations": "controller_mutation_rate",
    "connections": "connection_creation_rate",
}
_WORDS: Final = {key: word for word, key in KEYS.items()}
_KIND_WORDS: Final[dict[str, str]] = {kind: word for word, kind in KINDS.items()}
_UNITS: Final = {
    "": 1,
    "k": 1_000,
    "m": 1_000_000,
    "g": 1_000_000_000,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
}
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:([kmg]i?)?b)?(?:/s)?", re.IGNORECASE)
_COMMA: Final = re.compile(r',(?=(?:[^"]*+"[^"]*+")*+[^"]*+\Z)')  # outside of quotes
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*+)"')
_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:%|/s)?")


@app.command("set")
def set_(
    entity: Entity,
    quotas: Annotated[
        list[str],
        typer.Argument(
            metavar="QUOTA=VALUE...",
            help="produce=1MB/s, fetch=2MiB/s, requests=50%, mutations=10/s, connections=20/s.",
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Set quotas of an entity; its others stay.

    \b
    Examples:
        ottla quota set user=alice produce=1MB/s fetch=2MB/s
        ottla quota set user=alice,client=batch requests=50%
        ottla quota set 'user="CN=alice,OU=billing"' fetch=1MB/s
        ottla quota set user produce=10MiB/s
        ottla quota set ip=10.0.0.7 connections=20/s
    """
    whose = _entity(entity)
    values = dict(map(_quota, quotas))
    with_admin(bootstrap, timeout, lambda admin: admin.alter_quotas(whose, values))
    if as_json:
        print_json({"entity": {str(kind): name for kind, name in whose.items()}, "values": values})
    else:
        typer.echo(f"set {', '.join(_shown(*one) for one in values.items())} of {_named(whose)}")


@app.command("list")
def list_(
    entity: Annotated[
        str | None,
        typer.Argument(metavar="[ENTITY]", help="Only entities with these parts."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """List the quotas.

    \b
    Examples:
        ottla quota list
        ottla quota list user=alice --json
    """
    whose = None if entity is None else _entity(entity)
    found = with_admin(bootstrap, timeout, lambda admin: admin.describe_quotas(whose))
    if as_json:
        print_json([{"entity": dict(one.entity), "values": dict(one.values)} for one in found])
        return
    rows: list[dict[str, Cell]] = [
        {"entity": _named(one.entity), "quota": _WORDS.get(key, key), "value": _number(value)}
        for one in found
        for key, value in one.values.items()
    ]
    print_list("quotas", rows, ("entity", "quota", "value"), as_json=False)


@app.command()
def delete(
    entity: Entity,
    quotas: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUOTA...]", help="Only these: produce, fetch, requests, ..."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Delete quotas of an entity, all or some.

    \b
    Examples:
        ottla quota delete user=alice
        ottla quota delete user=alice,client=batch requests
    """
    whose = _entity(entity)
    keys = [_key(word) for word in quotas or ()]

    async def remove(admin: Admin) -> list[str]:
        gone = keys or _keys_of(await admin.describe_quotas(whose, strict=True))
        if gone:
            await admin.alter_quotas(whose, dict.fromkeys(gone))
        return gone

    gone = with_admin(bootstrap, timeout, remove)
    if as_json:
        print_json({"entity": {str(kind): name for kind, name in whose.items()}, "deleted": gone})
    elif gone:
        words = ", ".join(_WORDS.get(key, key) for key in gone)
        typer.echo(f"deleted {words} of {_named(whose)}")
    else:
        typer.echo("no quotas")


def _keys_of(found: Sequence[QuotaDescription]) -> list[str]:
    return [key for one in found for key in one.values]


def _entity(text: str) -> Mapping[QuotaEntity, str | None]:
    found: dict[QuotaEntity, str | None] = {}
    for part in _COMMA.split(text):
        word, equals, name = part.partition("=")
        match = _QUOTED.fullmatch(name)
        if match is not None:
            name = match[1].replace('""', '"')
        kind = KINDS.get(word)
        if kind is None or kind in found or (equals and not name):
            raise typer.BadParameter(
                f"{text!r} is not user=NAME, client=NAME, both with a comma, or ip=ADDRESS; "
                "quote a name that has a comma: 'user=\"CN=alice,OU=billing\"'",
                param_hint="ENTITY",
            )
        found[kind] = name if equals else None
    return found


def _key(word: str) -> str:
    if word not in KEYS:
        raise typer.BadParameter(f"{word!r} is none of {', '.join(KEYS)}", param_hint="QUOTA")
    return KEYS[word]


def _quota(text: str) -> tuple[str, float]:
    word, _, value = text.partition("=")
    key = _key(word)
    if word in ("produce", "fetch"):
        match = _RATE.fullmatch(value)
        if match is not None:
            return key, float(match[1]) * _UNITS[(match[2] or "").lower()]
    else:
        match = _NUMBER.fullmatch(value)
        if match is not None:
            return key, float(match[1])
    raise typer.BadParameter(f"{text!r} is no quota, such as {_EXAMPLE[word]}", param_hint="QUOTA")


_EXAMPLE: Final = {
    "produce": "produce=1MB/s",
    "fetch": "fetch=512KiB/s",
    "requests": "requests=50%",
    "mutations": "mutations=10/s",
    "connections": "connections=20/s",
}


def _shown(key: str, value: float) -> str:
    return f"{_WORDS.get(key, key)}={_number(value)}"


def _number(value: float) -> str:
    """All its digits, and no fraction that is zero."""
    return str(int(value)) if value.is_integer() else str(value)


def _named(entity: Mapping[QuotaEntity, str | None] | Mapping[str, str | None]) -> str:
    parts = sorted(entity.items(), reverse=True)
    return ",".join(
        _KIND_WORDS[kind] + ("" if name is None else f"={_quoted(name)}") for kind, name in parts
    )


def _quoted(name: str) -> str:
    """As an argument takes it."""
    if "," not in name and not name.startswith('"'):
        return name
    return '"' + name.replace('"', '""') + '"'
