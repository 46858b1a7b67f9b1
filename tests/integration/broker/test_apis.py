"""The table of APIs: the page made from it, and what a broker imports."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("page", ["compatibility", "permissions"])
def test_a_page_is_what_the_table_says(page: str) -> None:
    script = ROOT / "scripts" / f"generate_{page}.py"
    run = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, ""), run.stderr


def test_a_broker_starts_without_what_it_does_not_need() -> None:
    code = (
        "import sys, ottla.broker.running.run, ottla.broker.running.node;"
        "heavy = {'kio', 'numpy', 'numba', 'pyarrow', 'prometheus_client', 're2', 'rich', 'typer',"
        " 'cramjam', 'crc32c', 'email', 'tempfile', 'tomllib', 'ottla.coordination',"
        " 'ottla.log.partition'};"
        "found = heavy & set(sys.modules);"
        "sys.exit(str(found) if found else 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
