"""The reference pages of the documentation, made from the code each time the site is built.

mkdocs calls `on_files`; the pages exist in the site only, so that none can be out of date.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import typer.main
from mkdocs.structure.files import File, Files

from ottla.broker.running.metrics import NodeCollector
from ottla.broker.running.node import Node
from ottla.cli.whole import app
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.config.broker_keys import BROKER_CONFIGS
from ottla.metadata.config.keys import GROUP_CONFIGS, TOPIC_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mkdocs.config.defaults import MkDocsConfig
    from typer._click.core import Command

    from ottla.metadata.config.types import ConfigDef

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
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
# page: its title, the module whose `__all__` it shows, what to know first
PYTHON = {
    "python": (
        "Clients and testing",
        "ottla",
        """The package's own names. `ottla.sync` has `Admin`, `Producer`, `Reader` and
`ShareConsumer` without `await`; the fixtures are on [the page on tests](../how-to/testing.md).""",
    ),
    "python-offsets": (
        "Offsets",
        "ottla.offsets",
        "Where a consumer is, kept by itself. How and why: [offsets](../how-to/offsets.md).",
    ),
    "python-streams": (
        "Streams",
        "ottla.streams",
        "One consumer and producer; the URL decides the store: [streams](../how-to/streams.md).",
    ),
    "python-pipelines": (
        "Pipelines",
        "ottla.spark.pipelines",
        "What a file declares: [pipelines](../how-to/pipelines.md).",
    ),
    "python-errors": (
        "Errors",
        "ottla.errors",
        "All that Ottla raises; `OttlaError` is above all of it.",
    ),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {
        "reference/cli.md": command_line(),
        "reference/configuration.md": configuration(),
        **{f"reference/{page}.md": python_api(page) for page in PYTHON},
        "reference/metrics.md": asyncio.run(metrics()),
        "reference/figures.md": figures(),
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    for plot in (BENCHMARKS / "plots").glob("*.png"):
        files.append(File.generated(config, f"reference/plots/{plot.name}", abs_src_path=str(plot)))
    return files


def figures() -> str:
    """The results of the benchmarks, which also stand beside the scripts."""
    results = (BENCHMARKS / "RESULTS.md").read_text()
    return re.sub(r"\[(\w+)\]\(\1\.py\)", r"\1", results.replace("# Results", "# Figures", 1))


def command_line() -> str:
    root = typer.main.get_command(app)
    parts = ["# Command line\n"]
    context = typer.Context(root, info_name="ottla", terminal_width=100, max_content_width=100)
    for path, text in _helps(root, context):
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
        default = "" if each.default is None else _code(str(each.default))
        live = "yes" if each.dynamic else ""
        kind = each.type.name.lower()
        lines.append(f"| {_code(each.name)} | {kind} | {default} | {live} | {each.doc} |")
    return "\n".join(lines)


def _code(text: str) -> str:
    """Code that may be broken between words, not within one."""
    breakable = re.sub(r"(?<=[.,:])(?=.)", "<wbr>", escape(text))
    return f"<code>{breakable}</code>"


def python_api(page: str) -> str:
    title, module, introduction = PYTHON[page]
    names: Sequence[str] = import_module(module).__all__
    entries = "\n".join(f"::: {module}.{name}\n" for name in names)
    return f"# {title}\n\n{introduction}\n\n{entries}"


async def metrics() -> str:
    """What a running node shows; a family without samples is described as well."""
    with tempfile.TemporaryDirectory() as directory:
        settings = load_broker_config(
            sets=(
                "listeners=PLAINTEXT://127.0.0.1:0",
                "remote.log.storage.system.enable=true",
                f"rsm.config.url={Path(directory, 'tier').as_uri()}",
            )
        )
        node = await Node.start(settings, Path(directory), ephemeral=True)
        families = list(NodeCollector(node).collect())
        await node.stop()
    lines = []
    for family in families:
        labels = ", ".join(f"`{name}`" for name in getattr(family, "_labelnames", ()))
        lines.append(f"| `{family.name}` | {family.type} | {labels} | {family.documentation} |")
    return METRICS + "\n".join(lines) + "\n"
