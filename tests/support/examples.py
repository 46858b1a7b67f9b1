"""Runs examples as readers would type them in `python -m asyncio`: with `await` at the top level.

The address in an example is that of a broker with default settings; what runs is a broker that has
just been started, with a topic `orders` of three records.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ottla import EmbeddedBroker, ProducerRecord
from ottla.sync import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import CodeType, ModuleType

    import pytest

ADDRESS: Final = "127.0.0.1:9092"
OPTIONS: Final = doctest.ELLIPSIS
# Ten seconds is long for a reader, and short for a machine that runs many tests beside this one.
TIMEOUT: Final = re.compile(r"(?<=\.poll\(timeout=|\.next\(timeout=)10(?=\))")
BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@contextmanager
def broker_with_orders() -> Iterator[str]:
    """The address of a broker with the records the examples speak of."""
    with EmbeddedBroker() as broker:
        with Producer(broker.bootstrap) as producer:
            values = (b"one", b"two", b"three")
            producer.send_many("orders", [ProducerRecord(value, b"k") for value in values])
        yield broker.bootstrap


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    """The docstrings of a module that have examples."""
    found = doctest.DocTestFinder(exclude_empty=True).find(module, globs={})
    return [one for one in found if one.examples]


def run_docstring(test: doctest.DocTest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is wrong with the examples of a docstring; nothing, if all is well."""
    said: list[str] = []
    with broker_with_orders() as address, asyncio.Runner() as runner:
        for example in test.examples:
            example.source = _here(example.source, address)
        # doctest executes code that is not async; shadowing its `exec` lets it run the rest.
        monkeypatch.setattr(
            doctest, "exec", lambda code, names: _run(code, names, runner), raising=False
        )
        doctest.DocTestRunner(optionflags=OPTIONS).run(
            test, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, out=said.append
        )
    return "".join(said)


def run_page(page: Path) -> int:
    """Run the Python blocks of a page one after the other, with the names of those before."""
    text = page.read_text()
    names: dict[str, Any] = {"__name__": page.name}
    blocks = list(BLOCK.finditer(text))
    with broker_with_orders() as address, asyncio.Runner() as runner:
        for block in blocks:
            # On the line it has in the page, so that a traceback points there.
            source = "\n" * text[: block.start(1)].count("\n") + block[1]
            code = compile(_here(source, address), page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            _run(code, names, runner)
    return len(blocks)


def _here(source: str, address: str) -> str:
    return TIMEOUT.sub("60", source.replace(ADDRESS, address))


def _run(code: CodeType, names: dict[str, Any], runner: asyncio.Runner) -> None:
    found = eval(code, names)
    if inspect.iscoroutine(found):
        runner.run(found)
