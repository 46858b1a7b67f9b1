"""The reference pages of the documentation, made from the code each time the site is built.

mkdocs calls `on_files`; the pages exist in the site only, so that none can be out of date.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer.main
from mkdocs.structure.files import File, Files

import ottla
from ottla.broker.metrics import NodeCollector
from ottla.broker.node import Node
from ottla.cli import app
from ottla.metadata.broker_config import load_broker_config
from ottla.metadata.broker_config_defs import BROKER_CONFIGS
from ottla.metadata.config_defs import GROUP_CONFIGS, TOPIC_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mkdocs.config.defaults import MkDocsConfig
    from typer._click.core import Command

    from ottla.metadata.config_types import ConfigDef

CONFIGURATION = """# Configuration

Keys are Kafka's own. A broker takes them from `--config FILE` (TOML or properties), from
`--set key=value` and the environment (`OTTLA_LOG_SEGMENT_BYTES` for `log.segment.bytes`); an
unknown key is an error that names the nearest known one. Topic and group keys are set with
`ottla topic alter`, by `Admin.alter_configs` or by any Kafka client. *Live* keys may be changed
while the broker runs.
"""
METRICS = """# Metrics

`ottla broker --metrics-port PORT` serves these in Prometheus' format at `/metrics`.

| metric | kind | labels | what |
|---|---|---|---|
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {
        "reference/cli.md": command_line(),
        "reference/configuration.md": configuration(),
        "reference/python.md": python_api(),
        "reference/metrics.md": asyncio.run(metrics()),
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def command_line() -> str:
    root = typer.main.get_command(app)
    parts = ["# Command line\n"]
    for path, text in _helps(root, typer.Context(root, info_name="ottla")):
        parts.append(f"## {path}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _helps(command: Command, context: typer.Context) -> Iterator[tuple[str, str]]:
    yield context.command_path, command.get_help(context)
    for name, child in getattr(command, "commands", {}).items():
        yield from _helps(child, typer.Context(child, info_name=name, parent=context))


def configuration() -> str:
    parts = [CONFIGURATION]
    tables = {"Broker": BROKER_CONFIGS, "Topics": TOPIC_CONFIGS, "Groups": GROUP_CONFIGS}
    for title, definitions in tables.items():
        parts.append(f"## {title}\n\n{_table(definitions)}\n")
    return "\n".join(parts)


def _table(definitions: Mapping[str, ConfigDef]) -> str:
    lines = ["| key | type | default | live | what |", "|---|---|---|---|---|"]
    for each in definitions.values():
        default = "" if each.default is None else f"`{each.default}`"
        live = "yes" if each.dynamic else ""
        kind = each.type.name.lower()
        lines.append(f"| `{each.name}` | {kind} | {default} | {live} | {each.doc} |")
    return "\n".join(lines)


def python_api() -> str:
    names = "\n".join(f"::: ottla.{name}\n" for name in ottla.__all__)
    return f"# Python API\n\n{names}"


async def metrics() -> str:
    """What a running node shows; a family without samples is described as well."""
    with tempfile.TemporaryDirectory() as directory:
        settings = load_broker_config(sets=("listeners=PLAINTEXT://127.0.0.1:0",))
        node = await Node.start(settings, Path(directory), ephemeral=True)
        families = list(NodeCollector(node).collect())
        await node.stop()
    lines = []
    for family in families:
        labels = ", ".join(f"`{name}`" for name in getattr(family, "_labelnames", ()))
        lines.append(f"| `{family.name}` | {family.type} | {labels} | {family.documentation} |")
    return METRICS + "\n".join(lines) + "\n"
