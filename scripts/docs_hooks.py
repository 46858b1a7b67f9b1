"""The reference pages of the documentation, made from the code each time the site is built.

mkdocs calls `on_files`; the pages exist in the site only, so that none can be out of date.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from html import escape
from importlib import import_module
from inspect import ismodule
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

Keys have Kafka's names; those that begin with `ottla.` are our own. A broker reads them from
`--config FILE` or `OTTLA_CONFIG` (TOML or properties), from the environment
(`OTTLA_LOG_SEGMENT_BYTES` is `log.segment.bytes`) and from `--set key=value`; the later wins.
An unknown key is an error that names the nearest known one. Topic and group keys are set with
`ottla topic alter`, `Admin.alter_configs` or any Kafka client. *Live* keys can be changed while the
broker runs. This page is generated from the tables that the broker uses.
"""
METRICS = """# Metrics

`ottla broker --metrics-port PORT` serves these in Prometheus' format at `/metrics`.

| metric | kind | labels | what |
|---|---|---|---|
"""
# page: its title, what to know first, and modules (all of `__all__`) or single names
PYTHON: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "python": (
        "Python: ottla",
        """Clients, the types they take and return, and the broker for tests. `ottla.sync` has the
clients [without `await`](python-sync.md). How to use them: [clients](../how-to/clients.md),
[tests](../how-to/testing.md), [work queues](../how-to/work-queue.md).""",
        ("ottla",),
    ),
    "python-sync": (
        "Python: ottla.sync",
        """Blocking twins of the async classes, with the same names, arguments and results. How to
use them: [clients](../how-to/clients.md#without-async). The classes behind `connect` are in
`ottla.sync.streams`.""",
        ("ottla.sync", "ottla.sync.streams"),
    ),
    "python-streams": (
        "Python: ottla.streams",
        """One consumer and one producer for Kafka, Redis, files and pipes; the URL picks the store.
How to use them: [streams](../how-to/streams.md).""",
        ("ottla.streams",),
    ),
    "python-offsets": (
        "Python: ottla.offsets",
        """Stores for positions that a consumer keeps by itself: files, SQLite, PostgreSQL, memory.
How to use them: [offsets in your database](../how-to/offsets.md).""",
        ("ottla.offsets",),
    ),
    "python-tier": (
        "Python: ottla.tier",
        """Read tiered segments from the object store, without a broker: `ottla.tier.reader`. How
to use it: [tier to object storage](../how-to/tier.md#reading-without-a-broker). The catalogue of
segments and its managers: `ottla.tier.catalogue`. What the broker does with both is on the page
about [tiered storage](../explanation/tiered-storage.md).""",
        (
            "ottla.tier.reader",
            "ottla.tier.catalogue",
            "ottla.tier.store.storage_manager.RemoteStorageManager",
            "ottla.objects.location.StoreLocation",
            "ottla.objects.location.parse_location",
            "ottla.objects.location.open_store",
            "ottla.objects.errors.RemoteStorageError",
            "ottla.objects.errors.RetriableRemoteError",
            "ottla.objects.errors.RemoteNotFound",
            "ottla.tier.errors.OffsetNotRemote",
            "ottla.tier.errors.CorruptRemoteData",
        ),
    ),
    "python-spark": (
        "Python: ottla.spark",
        """Sessions, the helper for exactly-once writes, topics as tables, and what a pipeline file
declares. How to use them: [Spark](../how-to/spark.md), [query topics as
tables](../how-to/query-tables.md), [pipelines](../how-to/pipelines.md); the options of the format:
[Spark options](spark-options.md).""",
        (
            "ottla.spark.session.local_session",
            "ottla.spark.session.profile",
            "ottla.spark.session.register",
            "ottla.spark.session.prepare_environment",
            "ottla.spark.sink.owners.by_partition",
            "ottla.spark.tables",
            "ottla.spark.pipelines",
        ),
    ),
    "python-errors": (
        "Python: ottla.errors",
        """Every exception that Ottla raises. `OttlaError` is the root; `ClientError`,
`OffsetError`, `StreamError` and `SparkError` are the roots of the four parts.""",
        ("ottla.errors",),
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
    title, introduction, sources = PYTHON[page]
    names = [name for source in sources for name in _public(source)]
    entries = "\n".join(f"::: {name}\n" for name in names)
    return f"# {title}\n\n{introduction}\n\n{entries}"


def _public(source: str) -> list[str]:
    """The name itself, or those that a module has in `__all__`; modules have their own pages."""
    try:
        module = import_module(source)
    except ModuleNotFoundError:
        return [source]
    names: Sequence[str] = module.__all__
    return [f"{source}.{name}" for name in names if not ismodule(getattr(module, name))]


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
        node = await Node.start(settings, Path(directory, "data"), siblings=True)
        families = list(NodeCollector(node).collect())
        await node.stop()
    lines = []
    for family in families:
        labels = ", ".join(f"`{name}`" for name in getattr(family, "_labelnames", ()))
        lines.append(f"| `{family.name}` | {family.type} | {labels} | {family.documentation} |")
    return METRICS + "\n".join(lines) + "\n"
