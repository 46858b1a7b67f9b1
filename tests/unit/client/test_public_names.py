"""What `import ottla` costs and offers."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

import ottla
from ottla import sync
from ottla.client.admin.admin import Admin
from tests.support.junk import public_calls

TYPES = ["admin.types", "admin.resets", "producer.types", "reader.types", "share.types"]


def run(code: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_names_are_found_where_they_live() -> None:
    assert ottla.Admin is Admin
    for name in ottla.__all__:
        found = getattr(ottla, name)
        assert inspect.getdoc(found), name
        if not isinstance(found, ModuleType):
            assert found.__module__ == ottla._HOMES[name], name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        ottla.Nothing  # noqa: B018  # on purpose


def test_completion_shows_the_names_and_nothing_else() -> None:
    assert dir(ottla) == sorted(["__version__", *ottla.__all__])
    assert {"Admin", "Consumer", "Security", "ShareRecord", "errors", "streams"} <= {*dir(ottla)}
    assert dir(sync) == sorted(sync.__all__)


@pytest.mark.parametrize(
    "kind", [ottla.Admin, ottla.Producer, ottla.Reader, ottla.ShareConsumer, ottla.ShareWorker]
)
def test_what_a_call_returns_can_be_annotated(kind: type) -> None:
    inner = {
        name
        for module in TYPES
        for name, found in vars(import_module(f"ottla.client.{module}")).items()
        if inspect.isclass(found) and not issubclass(found, Exception)
    }
    for name, function in public_calls(kind):
        words = set(re.findall(r"\w+", str(inspect.signature(function).return_annotation)))
        assert words & inner <= {*ottla.__all__}, name


def test_the_import_alone_loads_nothing() -> None:
    code = "import sys; before = set(sys.modules); import ottla; print(set(sys.modules) - before)"
    loaded = eval(run(code))  # our own
    assert {one for one in loaded if one.partition(".")[0] == "ottla"} == {"ottla"}
    assert not loaded & {"typing", "asyncio", "dataclasses", "typer", "rich", "re", "enum"}


def test_the_client_needs_neither_the_broker_nor_heavy_libraries() -> None:
    others = (
        "('ottla.broker', 'ottla.log', 'ottla.metadata', 'numpy', 'pyarrow', 'uvloop', 'typer')"
    )
    names = "ottla.Admin, ottla.Producer, ottla.Reader, ottla.ShareConsumer, ottla.Consumer"
    code = f"import sys, ottla; {names}; print([m for m in {others} if m in sys.modules])"
    assert run(code) == "[]\n"


def test_modules_are_attributes() -> None:
    code = "import ottla; print(*(getattr(ottla, one).__name__ for one in ottla._MODULES))"
    named = " ".join(f"ottla.{one}" for one in ottla._MODULES)
    assert run(code) == named + "\n"
