"""`ottla table infer`: columns for JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    complain,
    fail,
    security,
    with_admin,
)
from ottla.cli.output import print_json

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.tables.inferring import Inference

SAMPLE = 10_000
MOST = 1_000_000
"""More values tell nothing new, and a million take a minute."""


def infer(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    sample: Annotated[
        int, typer.Option(metavar="N", min=1, max=MOST, help="Look at the newest N values.")
    ] = SAMPLE,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Propose ottla.table.value.schema for a topic of JSON values, by looking at some of them.

    \b
    Examples:
        ottla table infer orders
        ottla topic alter orders --config ottla.table.enable=true \\
          --config ottla.table.value.format=json \\
          --config "ottla.table.value.schema=$(ottla table infer orders)"
    """
    from ottla.errors import OttlaError
    from ottla.schemas.ddl import parse_ddl, to_ddl, type_ddl

    async def command(admin: Admin) -> Inference:
        from ottla.tables.inferring import Inference
        from ottla.tables.sampling import newest_values

        found = Inference()
        async for value in newest_values(bootstrap, admin, topic, sample, security=security()):
            found.add(value)
        return found

    try:
        found = with_admin(bootstrap, timeout, command)
        columns = found.columns()
        if not columns.names:
            fail(f"{topic}: none of {found.others} values is a JSON object with fields")
        ddl = to_ddl(columns)
        parse_ddl(ddl)  # within the limits of a table
    except OttlaError as error:
        fail(error)
    optional, mixed = found.optional(), found.mixed()
    if as_json:
        print_json(
            {
                "ddl": ddl,
                "objects": found.objects,
                "others": found.others,
                "columns": [
                    {
                        "name": one.name,
                        "type": type_ddl(one.type),
                        "values": optional.get(one.name, found.objects),
                        "mixed": one.name in mixed,
                    }
                    for one in columns
                ],
            }
        )
        return
    typer.echo(ddl)
    if found.others:
        complain(f"{found.others} of {found.objects + found.others} values are no JSON objects")
    if optional:
        told = ", ".join(f"{name} (in {count})" for name, count in optional.items())
        complain(f"optional, of {found.objects} values: {told}")
    if mixed:
        complain(f"of several types, so read as text: {', '.join(mixed)}")
