"""`ottla topic ...`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    Unset,
    delete_named,
    key_values,
    setting_changes,
    with_admin,
)
from ottla.cli.output import print_each, print_json, print_list, print_table, topic_id_text

if TYPE_CHECKING:
    from ottla.cli.output import Cell, Value
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.types import TopicDescription

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

MAX_PARTITIONS = 2**31 - 1
MAX_REPLICAS = 2**15 - 1

Name = Annotated[str, typer.Argument(help="The topic.")]
Names = Annotated[list[str], typer.Argument(help="The topics.")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="A setting of the topic. May be repeated."),
]


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MAX_PARTITIONS,
            help="Number of partitions. [default: the broker's]",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MAX_REPLICAS,
            help="Replicas of each partition. [default: the broker's]",
        ),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Create a topic.

    \b
    Examples:
        ottla topic create orders --partitions 6
        ottla topic create audit --config cleanup.policy=compact --config retention.ms=-1
    """
    configs = key_values(config or (), "--config")

    async def command(admin: Admin) -> dict[str, Cell]:
        from ottla.client.errors import KafkaError
        from ottla.wire.error_codes import ErrorCode

        try:
            made = await admin.create_topic(
                name,
                -1 if partitions is None else partitions,
                -1 if replication_factor is None else replication_factor,
                configs,
            )
        except KafkaError as error:
            if not if_not_exists or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return {"name": name, "created": False}
        return {
            "name": name,
            "created": True,
            "id": topic_id_text(made.id),
            "partitions": made.partitions,
            "replication_factor": made.replication_factor,
        }

    result = with_admin(bootstrap, timeout, command)
    if as_json:
        print_json(result)
    elif result["created"]:
        typer.echo(f"created topic {name} with {result['partitions']} partition(s)")
    else:
        typer.echo(f"topic {name} exists")


@app.command("list")
def list_(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also list internal topics.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """List the topics.

    \b
    Examples:
        ottla topic list
        ottla topic list --internal --json
    """
    found = with_admin(bootstrap, timeout, lambda admin: admin.list_topics(internal=internal))
    rows: list[dict[str, Cell]] = [
        {
            "name": one.name,
            "partitions": one.partitions,
            "internal": one.is_internal,
            "id": topic_id_text(one.id),
        }
        for one in found
    ]
    print_list("topics", rows, ("name", "partitions", "internal"), as_json=as_json)


@app.command()
def describe(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Show partitions, leaders and the settings that are not defaults.

    \b
    Examples:
        ottla topic describe orders
        ottla topic describe orders audit --json
    """
    found = with_admin(bootstrap, timeout, lambda admin: admin.describe_topics(names, configs=True))
    print_each(found, _as_value, _show, as_json=as_json)


@app.command()
def alter(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MAX_PARTITIONS,
            help="New number of partitions; it can only grow.",
        ),
    ] = None,
    config: Configs = None,
    unset: Unset = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Add partitions and change settings; other settings stay.

    \b
    Examples:
        ottla topic alter orders --partitions 12
        ottla topic alter orders --config retention.ms=86400000 --unset cleanup.policy
    """
    changes = setting_changes(config or (), unset or ())
    if partitions is None and not changes:
        raise typer.BadParameter("give --partitions, --config or --unset")

    async def command(admin: Admin) -> None:
        if changes:
            await admin.alter_configs("topic", name, changes)
        if partitions is not None:
            await admin.create_partitions(name, partitions)

    with_admin(bootstrap, timeout, command)
    if as_json:
        print_json({"name": name, "altered": True})
    else:
        typer.echo(f"altered topic {name}")


@app.command()
def delete(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Delete topics and all their records. Does not ask again.

    \b
    Examples:
        ottla topic delete orders
        ottla topic delete orders audit
    """
    delete_named(
        "topic",
        bootstrap,
        timeout,
        lambda admin: admin.delete_topics(names, return_errors=True),
        as_json=as_json,
    )


def _show(topic: TopicDescription) -> None:
    settings = _own_settings(topic)
    written = ", ".join(f"{key}={value}" for key, value in settings.items()) or "defaults"
    typer.echo(f"{topic.name}  id {topic_id_text(topic.id)}  configs: {written}")
    print_table(_partition_rows(topic), ("partition", "leader", "replicas", "isr"))


def _own_settings(topic: TopicDescription) -> dict[str, str | None]:
    from ottla.client.admin.types import ConfigSource

    return {
        one.name: one.value for one in topic.configs if one.source is ConfigSource.DYNAMIC_TOPIC
    }


def _partition_rows(topic: TopicDescription) -> list[dict[str, Cell]]:
    return [
        {
            "partition": one.index,
            "leader": None if one.leader < 0 else one.leader,
            "replicas": ",".join(map(str, one.replicas)),
            "isr": ",".join(map(str, one.isr)),
        }
        for one in topic.partitions
    ]


def _as_value(topic: TopicDescription) -> Value:
    return {
        "name": topic.name,
        "id": topic_id_text(topic.id),
        "internal": topic.is_internal,
        "configs": _own_settings(topic),
        "partitions": [
            {
                "partition": one.index,
                "leader": None if one.leader < 0 else one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": list(one.replicas),
                "isr": list(one.isr),
                "offline": list(one.offline),
            }
            for one in topic.partitions
        ],
    }
