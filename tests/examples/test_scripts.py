"""The scripts in `examples/` do what they say; each checks its own results and says so at the end.

`exactly_once_sqlite.py` has a test of its own, beside the page that shows it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.services import RedisServer

EXAMPLES = Path(__file__).parents[2] / "examples"
TESTS = Path(__file__).parents[1]


def run(*arguments: str, quiet: bool = True) -> list[str]:
    """What a script printed; it must end well and, if it is quiet, write nothing to stderr."""
    ran = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=EXAMPLES,
    )
    assert (ran.returncode, ran.stderr if quiet else "") == (0, ""), ran.stdout + ran.stderr
    return ran.stdout.splitlines()


def test_every_example_has_a_test() -> None:
    tests = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    assert [path.name for path in EXAMPLES.glob("*.py") if path.name not in tests] == []


def test_pytest_orders() -> None:
    *_, summary = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "pytest_orders.py")
    assert summary.startswith("3 passed")


def test_work_queue() -> None:
    assert run("work_queue.py") == [
        "291 orders packed, 39 attempts released",
        "3 dead letters: Offset delivery count exceeded the threshold.",
        "6 dead letters: Offset rejected by client.",
        "every order is accounted for",
    ]


def test_redis_relay(redis_server: RedisServer) -> None:
    *totals, result = run("redis_relay.py", redis_server.url)
    assert [line.split(":")[0] for line in totals] == ["ann", "ben", "eve"]
    assert result == "every order was relayed once"


def test_spark_format() -> None:
    # Spark writes its warnings to stderr.
    *shops, result = run("spark_format.py", quiet=False)
    assert shops == [f"shop-{number}: 1250 orders" for number in range(4)]
    assert result == "every order is in the table once"


def test_moving_clients() -> None:
    assert run("moving_clients.py") == [
        "50 customers, 150 orders of three clients",
        "each customer's orders are in one partition, in order",
    ]
