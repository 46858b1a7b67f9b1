"""What `import ottla` loads, in a fresh process."""

from __future__ import annotations

import subprocess
import sys

import ottla


def run(code: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


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
