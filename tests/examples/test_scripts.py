"""The scripts in `examples/` do what they say; each checks its own results and says so at the end.

`exactly_once_sqlite.py` has a test of its own, beside the page that shows it; those with Spark run
in the session of the tests in `tests/spark`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.s3 import moto_server, rsm_config

if TYPE_CHECKING:
    from tests.services import RedisServer

EXAMPLES = Path(__file__).parents[2] / "examples"
TESTS = Path(__file__).parents[1]


def run(*arguments: str, quiet: bool = True, **environment: str) -> list[str]:
    """What a script printed; it must end well and, if it is quiet, write nothing to stderr."""
    ran = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=EXAMPLES,
        env={**os.environ, **environment},
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


def test_transactions() -> None:
    assert run("transactions.py") == [
        "worker killed in batch 3",
        "worker killed in batch 5",
        "worker done",
        "200 invoices of workers that were killed are not seen",
        "2000 invoices for 2000 orders, each once: True",
    ]


def test_redis_relay(redis_server: RedisServer) -> None:
    *totals, result = run("redis_relay.py", redis_server.url)
    assert [line.split(":")[0] for line in totals] == ["ann", "ben", "eve"]
    assert result == "every order was relayed once"


def test_moving_clients() -> None:
    assert run("moving_clients.py") == [
        "50 customers, 150 orders of three clients",
        "each customer's orders are in one partition, in order",
    ]


def test_tier_s3() -> None:
    with moto_server() as endpoint:
        settings = rsm_config(endpoint, "example")
        printed = run(
            "tier_s3.py",
            settings["rsm.config.url"],
            quiet=False,  # the broker may warn of what it tries again
            AWS_ENDPOINT_URL=endpoint,
            AWS_REGION=settings["rsm.config.region"],
            AWS_ACCESS_KEY_ID=settings["rsm.config.access.key.id"],
            AWS_SECRET_ACCESS_KEY=settings["rsm.config.secret.access.key"],
        )
    assert printed == [
        "most records are in the store alone",
        "10000 records read through the broker",
        "what was copied is read without a broker",
    ]
