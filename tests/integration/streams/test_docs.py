"""docs/how-to/streams.md: its table is what the drivers say, its first example runs as typed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.services import RedisServer

ROOT = Path(__file__).parents[3]


def test_the_table_of_backends_is_current() -> None:
    script = ROOT / "scripts" / "generate_streams_table.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_example_runs_on_a_fresh_redis(redis_server: RedisServer) -> None:
    page = (ROOT / "docs" / "how-to" / "streams.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    body = example.replace("redis://localhost", redis_server.url)
    program = "import asyncio\nasync def main():\n" + textwrap.indent(body, "    ")
    done = subprocess.run(
        [sys.executable, "-c", program + "asyncio.run(main())"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("orders 0 ")
    assert done.stdout.endswith('{"id":7}\n')
