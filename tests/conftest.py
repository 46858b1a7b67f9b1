"""Profiles, marks and servers of all tests.

- `make test` runs what is marked neither `jvm`, `long` nor `soak`, `make verify` what has one of
  the first two, `make soak` everything with far larger counts (`tests.support.sizes`).
- `sampled`, and every test with Hypothesis: `make test` tries a part of its cases, `make verify`
  all of them.
- `jvm`: runs somebody else's JVM (Apache Kafka, its tools, Spark). Set here, by fixture, parameter
  or folder. Such a test gets one second try, because a JVM on a busy machine misses time limits of
  its own; nothing else gets one.
- `long`: takes many seconds (kill runs, exhaustive searches, whole programs, many members of other
  people's clients). Set by the test, or here: for whole files (`LONG`), and for clauses that are
  shown with PostgreSQL.
- Property tests draw the same examples in each run, except in `make soak`: a seed that fails there
  becomes an `@example`.
- `watch_loop` watches an event loop and fails the test if it stands still. With
  OTTLA_TEST_LOOP_MONITOR=1, as in `make soak`, every node that a test starts is watched.
- On CI a test that skips fails the run: what tests need is installed by the project's own files.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import loop_monitor
from tests.support.loop_monitor import LoopMonitor, LoopStalled
from tests.support.sizes import SOAK, examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
NODES: list[LoopMonitor] = []
LONG = tuple(
    HERE / name
    for name in (
        "browser",
        "conformance/test_foreign_codecs.py",
        "conformance/test_python_clients_many_topics.py",
        "conformance/test_python_clients_rebalances.py",
        "e2e",
        "examples",
        "faults/test_hostile_bytes.py",
        "faults/test_kill.py",
        "faults/test_nodes_kills.py",
        "faults/test_offsets_kills.py",
        "faults/test_share_kills.py",
        "faults/test_strangers.py",
        "faults/test_streams_kills.py",
        "faults/test_tier.py",
        "faults/test_transaction_histories.py",
        "faults/test_transaction_kills.py",
        "integration/broker/test_journal.py",
        "unit/coordination/test_reconcile_search.py",
        "unit/coordination/test_share_books_search.py",
        "unit/sharing/test_partition_search.py",
    )
)
FIRST = tuple(
    HERE / "unit" / name
    for name in (
        "wire/test_kernels.py",
        "wire/test_arrow_encode.py",
        "schemas/test_decode.py",
        "schemas/test_encode.py",
    )
)
"""They compile the kernels and store them, so that the other workers need not compile them, too."""
SPARK = (HERE / "spark",)
"""First: the longest files, and py4j cannot wait for sockets with numbers above 1023, which it gets
in a process whose brokers have that many files open by then."""
UNIT = (HERE / "unit",)
"""Last, as their names say: many short files, so that no worker ends long after the others."""
LATE = (HERE / "unit/wire", HERE / "unit/log")
"""Before the rest of them: long files."""
JVM_FIXTURES = frozenset({"apache_bootstrap", "java", "jvm", "spark", "tools"})
JVM_PARAMETERS = frozenset({"apache", "apache-kafka"})
CLAUSES = HERE / "clauses"

settings.register_profile(
    "ottla",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=examples(),
    derandomize=not SOAK,
)
settings.load_profile("ottla")

pytest_plugins = ["tests.services"]

# Collecting eight thousand tests makes a million objects that stay. Without the collector it takes
# a fifth less; frozen afterwards, they are not looked at again by each full collection.
gc.disable()


@pytest.fixture
def watch_loop() -> Iterator[Callable[[asyncio.AbstractEventLoop], None]]:
    """Called with a running loop: the test fails if the loop stands still from then on."""
    monitors: list[LoopMonitor] = []

    def watch(loop: asyncio.AbstractEventLoop) -> None:
        if loop_monitor.is_possible:
            monitors.append(LoopMonitor(loop))
            loop.call_soon_threadsafe(monitors[-1].start)

    yield watch
    with ExitStack() as stack:
        for monitor in monitors:
            monitor.stop()
            stack.callback(monitor.check)


def pytest_configure() -> None:
    if not (loop_monitor.is_wanted and loop_monitor.is_possible):
        return
    from ottla.broker.running.node import Node

    start = Node.start

    async def watched(*args: Any, **options: Any) -> Node:
        node = await start(*args, **options)
        monitor = LoopMonitor(asyncio.get_running_loop())
        monitor.start()
        NODES.append(monitor)
        return node

    Node.start = watched  # type: ignore[method-assign]


@pytest.fixture(autouse=loop_monitor.is_wanted)
def watch_nodes() -> Iterator[None]:
    """No loop with a node stands still during the test, whenever the node was started."""
    yield
    stalls = [stall for monitor in NODES for stall in monitor.taken()]
    if stalls:
        raise LoopStalled("\n".join(map(str, stalls)))


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _runs_a_jvm(item):
            item.add_marker(pytest.mark.jvm)
        if _is_in(item.path, LONG):
            item.add_marker(pytest.mark.long)
        if CLAUSES in item.path.parents and _uses_postgres(item):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("jvm"):
            item.add_marker(pytest.mark.flaky(reruns=1))
    items.sort(key=_place)  # else as they are


@functools.cache  # asked for each of thousands of tests
def _is_in(path: Path, places: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def _place(item: pytest.Item) -> int:
    if _is_in(item.path, (*FIRST, *SPARK)):
        return 0
    if not _is_in(item.path, UNIT):
        return 1
    return 2 if _is_in(item.path, LATE) else 3


def _runs_a_jvm(item: pytest.Item) -> bool:
    if _is_in(item.path, SPARK):
        return True
    if not JVM_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        return True
    return not JVM_PARAMETERS.isdisjoint(_words(item))


def _uses_postgres(item: pytest.Item) -> bool:
    return "postgres_server" in getattr(item, "fixturenames", ()) or "postgres" in _words(item)


def _words(item: pytest.Item) -> list[str]:
    """The parameters of the test that are text."""
    call = getattr(item, "callspec", None)
    values = [] if call is None else call.params.values()
    return [value for value in values if isinstance(value, str)]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"first try of {report.nodeid}", "-")
        terminalreporter.line(report.longreprtext)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and not SOAK and reporter and reporter.stats.get("skipped"):
        reporter.line("A test skipped, and on CI none may: see the reasons above.", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
