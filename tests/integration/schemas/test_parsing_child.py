"""The process that parses: what it answers, what ends it, and what comes after."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.schemas import parsing_child
from ottla.schemas.compatibility import Level, check
from ottla.schemas.model import InvalidSchema, Kind, Parsed, Schema, SchemaError, SchemaTooLarge
from ottla.schemas.parsing import parse
from ottla.schemas.parsing_child import ParsingChild

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

AVRO = Schema(Kind.AVRO, '{"type":"record","name":"R","fields":[]}')
GROWN = Schema(Kind.AVRO, '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}')


@pytest.fixture
async def child() -> AsyncIterator[ParsingChild]:
    child = ParsingChild()
    yield child
    await child.close()


def process(child: ParsingChild) -> int:
    assert child._process is not None
    return child._process.pid


def proc(child: ParsingChild, file: str) -> str:
    return Path(f"/proc/{process(child)}/{file}").read_text()


def exists(path: str) -> bool:
    return Path(path).exists()


def wait_for_files(child: ParsingChild, asking: asyncio.Task[Parsed]) -> None:
    while not (child._scratch and any(Path(child._scratch).iterdir())):
        assert not asking.done()
        time.sleep(0.01)


async def test_it_answers_what_parsing_and_comparing_here_would(child: ParsingChild) -> None:
    schemas = (
        AVRO,
        Schema(Kind.JSON, '{"type":"string"}'),
        Schema(Kind.PROTOBUF, 'syntax = "proto3"; message M {}'),
    )
    for schema in schemas:
        assert await child.parse(schema, {}) == parse(schema, {})
    old, new = parse(AVRO, {}), parse(GROWN, {})
    for level in Level:
        assert await child.check(Kind.AVRO, level, new, [old]) == check(
            Kind.AVRO, level, new, [old]
        )
    reference = {"R": AVRO.text}
    user = Schema(Kind.AVRO, '{"type":"array","items":"R"}')
    assert await child.parse(user, reference) == parse(user, reference)


async def test_an_invalid_schema_is_an_error_and_the_process_stays(child: ParsingChild) -> None:
    await child.parse(AVRO, {})
    pid = process(child)
    with pytest.raises(InvalidSchema, match="unknown type 'x'") as raised:
        await child.parse(Schema(Kind.AVRO, '["x"]'), {})
    assert raised.value.path == "/0"
    deep = "[" * 10_000 + "]" * 10_000
    with pytest.raises(SchemaTooLarge):
        await child.parse(Schema(Kind.AVRO, deep), {})
    assert process(child) == pid


async def test_requests_wait_for_each_other(child: ParsingChild) -> None:
    texts = [f'{{"type":"fixed","name":"F{size}","size":{size}}}' for size in range(20)]
    found = await asyncio.gather(*(child.parse(Schema(Kind.AVRO, text), {}) for text in texts))
    assert [one.tree["size"] for one in found] == [*range(20)]


@pytest.mark.long
async def test_case_23_what_takes_too_long_is_invalid_and_ends_the_process(
    child: ParsingChild,
) -> None:
    await child.parse(AVRO, {})
    pid = process(child)
    # Draft 4 asks for unique values; to compare them takes the square of their number.
    draft = "http://json-schema.org/draft-04/schema#"
    slow = json.dumps({"$schema": draft, "enum": [{"a": number} for number in range(60_000)]})
    with pytest.raises(InvalidSchema, match="takes more than 2 s"):
        await child.parse(Schema(Kind.JSON, slow), {})
    assert (await child.parse(AVRO, {})).kind is Kind.AVRO
    assert process(child) != pid


async def test_case_23_hostile_schemas_are_refused_or_done_in_time(child: ParsingChild) -> None:
    large = json.dumps({"type": "enum", "name": "E", "symbols": ["x" * 64] * 60_000})
    assert len(large) > 4 * 2**20 * 0.9
    with pytest.raises(InvalidSchema):
        await child.parse(Schema(Kind.AVRO, large), {})
    for kind in (Kind.AVRO, Kind.JSON):
        with pytest.raises(InvalidSchema):
            await child.parse(Schema(kind, '{"a":' * 10_000 + "1" + "}" * 10_000), {})
    laughs = {"d0": {"type": "string"}} | {
        f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n - 1}"}] * 10} for n in range(1, 40)
    }
    schema = Schema(Kind.JSON, json.dumps({"$ref": "#/definitions/d39", "definitions": laughs}))
    parsed = await child.parse(schema, {})
    other = await child.parse(Schema(Kind.JSON, '{"type":"integer"}'), {})
    assert await child.check(Kind.JSON, Level.FULL, parsed, [other])
    pattern = Schema(
        Kind.JSON, '{"patternProperties":{"^(a+)+$":{}},"properties":{"%s!":{}}}' % ("a" * 64)
    )
    one = await child.parse(pattern, {})
    assert await child.check(Kind.JSON, Level.BACKWARD, one, [other]) is not None


@pytest.mark.long
async def test_case_23_nothing_stays_on_disk_of_a_schema_that_took_too_long(
    child: ParsingChild,
) -> None:
    each = (f"message M{n} {{ M{n * 7 % 130_000} a = 1; }}" for n in range(130_000))  # a minute
    schema = Schema(Kind.PROTOBUF, 'syntax = "proto3";' + "".join(each))
    asking = asyncio.create_task(child.parse(schema, {}))
    await asyncio.to_thread(wait_for_files, child, asking)
    scratch = child._scratch
    with pytest.raises(InvalidSchema, match="takes more than 2 s"):
        await asking
    assert not exists(scratch)


async def test_the_process_ends_with_its_parent_and_cleans_up(child: ParsingChild) -> None:
    await child.parse(AVRO, {})
    running = child._process
    assert running is not None
    assert running.stdin is not None
    assert exists(child._scratch)
    running.stdin.close()  # as the end of the parent does
    assert await asyncio.to_thread(running.wait) == 0
    assert not exists(child._scratch)


async def test_a_process_that_was_killed_while_idle_is_replaced(child: ParsingChild) -> None:
    await child.parse(AVRO, {})
    running = child._process
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    await asyncio.to_thread(running.wait)
    assert await child.parse(AVRO, {}) == parse(AVRO, {})


async def test_an_idle_process_is_ended() -> None:
    child = ParsingChild(idle_seconds=0.01)
    try:
        await child.parse(AVRO, {})
        while child._process is not None:  # noqa: ASYNC110  # the thread ends it
            await asyncio.sleep(0.01)
        assert await child.parse(AVRO, {}) == parse(AVRO, {})
    finally:
        await child.close()


async def test_memory_is_bounded(child: ParsingChild) -> None:
    await child.parse(AVRO, {})
    assert f"Max address space         {parsing_child.MEMORY}" in proc(child, "limits")


async def test_secrets_of_the_environment_do_not_reach_it(
    child: ParsingChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_SECRET_X", "canary")
    await child.parse(AVRO, {})
    assert "PATH=" in proc(child, "environ")
    assert "canary" not in proc(child, "environ")


async def test_a_missing_library_is_named(
    child: ParsingChild, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "fastavro.py").write_text("raise ModuleNotFoundError('no', name='fastavro')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(SchemaError, match=r"schemas need fastavro; install it with: pip install"):
        await child.parse(AVRO, {})


async def test_the_loop_never_waits(
    child: ParsingChild, watch_loop: Callable[[asyncio.AbstractEventLoop], None]
) -> None:
    watch_loop(asyncio.get_running_loop())
    await child.parse(AVRO, {})
    large = Schema(Kind.JSON, json.dumps({"description": "x" * 4 * 2**20}))
    parsed = await child.parse(large, {})
    assert await child.check(Kind.JSON, Level.FULL, parsed, [parsed]) == []


def test_libraries_are_loaded_when_a_schema_of_their_format_is_met() -> None:
    program = """
import sys
from ottla.schemas import parsing_child
from ottla.schemas.model import Kind, Schema
from ottla.schemas.parsing import parse
heavy = {"fastavro", "jsonschema", "google.protobuf", "grpc_tools", "re2", "numpy", "pyarrow"}
print(sorted(heavy & sys.modules.keys()))
parse(Schema(Kind.AVRO, '"int"'), {})
print(sorted(heavy & sys.modules.keys()))
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.split("\n")[:2] == ["[]", "['fastavro']"]
