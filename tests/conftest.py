"""Hypothesis profiles (`ci` for `make test`, `soak` for long runs), real servers, second tries."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("ci"), max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

pytest_plugins = ["tests.services"]

FAULTS = Path(__file__).parent / "faults"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that other software upset gets one more try, and the summary names it (RERUN).

    JVMs, Spark and other people's clients share two cores here and now and then miss a time limit
    of their own. What went wrong at first is printed: a name that comes back is a bug to look at.
    What checks our own promises by chance gets no second try: the fault runs, where one failure in
    a hundred is the finding, and the property tests.
    """
    for item in items:
        if FAULTS in item.path.parents:
            continue
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            continue
        item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"first try of {report.nodeid}", "-")
        terminalreporter.line(report.longreprtext)
