"""`ottla registry ...`: subjects, schemas, levels and modes of a schema registry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    complain,
    fail,
    given_security,
    security,
    sentences,
    with_admin,
)
from ottla.cli.output import print_json, print_list

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.schemas.model import Reference
    from ottla.schemas.registry_client import RegisteredSchema, SchemaRegistry

T = TypeVar("T")

app = typer.Typer(help="Show and change the schemas of a registry.", no_args_is_help=True)

Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="The registry; without it, the one that the broker names."
    ),
]
Subject: TypeAlias = Annotated[str, typer.Argument(metavar="SUBJECT", help="As orders-value.")]
OptionalSubject: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="[SUBJECT]", help="Without it: what counts for all.")
]
File: TypeAlias = Annotated[
    Path, typer.Argument(metavar="FILE", help="The schema: .avsc, .json or .proto.")
]
KindOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--kind", metavar="KIND", help="avro, json or protobuf, whatever FILE is called."),
]
References: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="What a name in the schema stands for. May be repeated.",
    ),
]
MAX_PORT = 65_535
KINDS = {".avsc": "avro", ".json": "json", ".proto": "protobuf"}


@app.command("run")
def run(
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Where to serve; port 0: a free one."),
    ] = "127.0.0.1:8081",
    topic: Annotated[
        str, typer.Option("--topic", metavar="TOPIC", help="The topic that keeps the schemas.")
    ] = "_schemas",
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Listen although anyone on the network can come in; for networks of your own.",
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Serve a schema registry beside any Kafka cluster, until SIGTERM or Ctrl-C.

    One runs for a topic: a second one takes over, and the first one ends. Prints a line when ready.

    \b
    Examples:
        ottla registry run --bootstrap kafka:9092
        ottla registry run --bootstrap kafka:9093 --command-config client.properties
    """
    import asyncio

    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise typer.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
    host = host.strip("[]")
    if host not in ("127.0.0.1", "::1", "localhost") and not insecure:
        raise typer.BadParameter(
            f"{listen} would let anyone on the network read and change schemas; use 127.0.0.1, or "
            "--insecure if the network is yours",
            param_hint="--listen",
        )
    try:
        from ottla.registry import standalone
    except ImportError as error:
        complain(f"the registry needs {error.name}: pip install 'ottla[registry]'")
        raise typer.Exit(2) from None

    def ready(url: str) -> None:
        typer.echo(f"ottla registry ready: {url}")

    with sentences():
        stopped = asyncio.run(
            standalone.run(bootstrap, topic, security(), (host, int(port)), ready)
        )
    if not stopped:
        fail(standalone.TAKEN_OVER)


@app.command("subjects")
def subjects(
    prefix: Annotated[
        str, typer.Argument(metavar="[PREFIX]", help="Only names that begin so.")
    ] = "",
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Show those that are soft-deleted, too.")
    ] = False,
    url: Url = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """List the subjects.

    \b
    Examples:
        ottla registry subjects
        ottla registry subjects orders --json
    """
    found = _ask(url, bootstrap, timeout, lambda one: one.subjects(prefix, deleted=deleted))
    if as_json:
        print_json(found)
    else:
        print_list("subjects", [{"subject": name} for name in found], ["subject"], as_json=False)


@app.command("show")
def show(
    subject: Subject,
    version: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", min=1, help="Default: the latest.")
    ] = None,
    url: Url = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Print a schema; its id and version go to stderr.

    \b
    Examples:
        ottla registry show orders-value > orders.avsc
        ottla registry show orders-value 3 --json
    """
    found = _ask(url, bootstrap, timeout, lambda one: one.version(subject, version))
    if as_json:
        _print_registered(found)
        return
    typer.echo(
        f"{found.subject} version {found.version}, id {found.id}, "
        f"{found.schema.kind.value.lower()}",
        err=True,
    )
    typer.echo(found.schema.text)


@app.command("add")
def add(
    subject: Subject,
    file: File,
    kind: KindOption = None,
    reference: References = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Store it in its normal form.")
    ] = False,
    url: Url = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Register a schema; one that the subject has already keeps its id.

    \b
    Examples:
        ottla registry add orders-value orders.avsc
        ottla registry add orders-value orders.proto --reference shop.proto=shop:1
    """
    text, named, references = _text(file), _kind(file, kind), _references(reference)
    found = _ask(
        url,
        bootstrap,
        timeout,
        lambda one: one.register(
            subject, text, kind=named, references=references, normalize=normalize
        ),
    )
    if as_json:
        _print_registered(found)
    else:
        typer.echo(f"{found.subject} version {found.version} has the id {found.id}")


@app.command("check")
def check(
    subject: Subject,
    file: File,
    kind: KindOption = None,
    reference: References = None,
    url: Url = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Say whether a schema may become the next version; status 1 if not.

    \b
    Examples:
        ottla registry check orders-value orders.avsc
    """
    text, named, references = _text(file), _kind(file, kind), _references(reference)
    found = _ask(
        url,
        bootstrap,
        timeout,
        lambda one: one.check(subject, text, kind=named, references=references),
    )
    if as_json:
        print_json({"is_compatible": found.is_compatible, "messages": found.messages})
    elif found.is_compatible:
        typer.echo(f"{file} may follow the versions of {subject}")
    else:
        typer.echo(f"{file} may not follow the versions of {subject}:")
        for message in found.messages:
            typer.echo(f"  {message}")
    if not found.is_compatible:
        raise typer.Exit(1)


@app.command("config")
def config(
    subject: OptionalSubject = None,
    level: Annotated[
        str | None,
        typer.Option(
            "--set",
            metavar="LEVEL",
            help="NONE, BACKWARD, FORWARD, FULL, or one of these with _TRANSITIVE.",
        ),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Remove the subject's own.")] = False,
    url: Url = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Show or set the compatibility level.

    \b
    Examples:
        ottla registry config
        ottla registry config orders-value --set FULL
        ottla registry config orders-value --unset
    """

    async def run(one: SchemaRegistry) -> str:
        if level is not None or unset:
            await one.set_config(level, subject)
        return await one.config(subject)

    _one_of(level, unset=unset)
    found = _ask(url, bootstrap, timeout, run)
    if as_json:
        print_json({"subject": subject, "level": found})
    else:
        typer.echo(found)


@app.command("mode")
def mode(
    subject: OptionalSubject = None,
    new: Annotated[
        str | None,
        typer.Option(
            "--set", metavar="MODE", help="READWRITE, READONLY, READONLY_OVERRIDE, IMPORT."
        ),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Remove the subject's own.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="IMPORT although there are versions already.")
    ] = False,
    url: Url = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Show or set the mode.

    \b
    Examples:
        ottla registry mode --set READONLY
        ottla registry mode orders-value --unset
    """

    async def run(one: SchemaRegistry) -> str:
        if new is not None or unset:
            await one.set_mode(new, subject, force=force)
        return await one.mode(subject)

    _one_of(new, unset=unset)
    found = _ask(url, bootstrap, timeout, run)
    if as_json:
        print_json({"subject": subject, "mode": found})
    else:
        typer.echo(found)


@app.command("delete")
def delete(
    subject: Subject,
    version: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", min=1, help="Default: the whole subject.")
    ] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Remove what is soft-deleted already, for good.")
    ] = False,
    url: Url = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Soft-delete a version or a subject: its schemas are still found by id.

    \b
    Examples:
        ottla registry delete orders-value 3
        ottla registry delete orders-value
        ottla registry delete orders-value --permanent
    """
    gone = _ask(
        url, bootstrap, timeout, lambda one: one.delete(subject, version, permanent=permanent)
    )
    if as_json:
        print_json({"subject": subject, "versions": gone})
    else:
        typer.echo(f"deleted {subject} version {', '.join(map(str, gone))}")


def _ask(
    url: str | None,
    bootstrap: str,
    timeout: float,
    command: Callable[[SchemaRegistry], Awaitable[T]],
) -> T:
    import asyncio

    from ottla.schemas.model import SchemaError
    from ottla.schemas.registry_client import SchemaRegistry

    found = url or with_admin(bootstrap, timeout, lambda admin: admin.registry_url())
    if found is None:
        fail(
            f"the broker at {bootstrap} names no schema registry; start it with --registry, or "
            "give --url"
        )

    async def run() -> T:
        async with SchemaRegistry(found, security=given_security(), timeout=timeout) as registry:
            return await command(registry)

    try:
        with sentences():
            return asyncio.run(run())
    except SchemaError as error:
        fail(_with_options(str(error)))


def _with_options(text: str) -> str:
    """The registry names parameters of its URLs; here they are options."""
    return re.sub(r"\b(permanent|force)=true\b", r"--\1", text)


def _print_registered(found: RegisteredSchema) -> None:
    schema = found.schema
    print_json(
        {
            "subject": found.subject,
            "version": found.version,
            "id": found.id,
            "guid": found.guid,
            "kind": schema.kind.value,
            "references": [
                {"name": one.name, "subject": one.subject, "version": one.version}
                for one in schema.references
            ],
            "schema": schema.text,
        }
    )


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="FILE") from None


def _kind(file: Path, kind: str | None) -> str:
    found = kind or KINDS.get(file.suffix.lower())
    if found is None:
        raise typer.BadParameter(
            f"{file.name} is not called .avsc, .json or .proto", param_hint="--kind"
        )
    return found


def _references(given: list[str] | None) -> list[Reference]:
    from ottla.schemas.model import Reference

    found = []
    for one in given or ():
        name, equals, place = one.partition("=")
        subject, _, version = place.rpartition(":")
        if not equals or not subject or not version.isdecimal():
            raise typer.BadParameter(
                f"{one!r} is not NAME=SUBJECT:VERSION", param_hint="--reference"
            )
        found.append(Reference(name, subject, int(version)))
    return found


def _one_of(value: str | None, *, unset: bool) -> None:
    if value is not None and unset:
        raise typer.BadParameter("contradicts --set; leave one of them out", param_hint="--unset")
