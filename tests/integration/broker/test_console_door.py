"""The console beside a broker: a socket until somebody comes, then a process."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.broker.errors import CannotListen
from ottla.broker.running import console as door
from ottla.broker.running.console import AT_ONCE, MANY, PAUSE, ConsoleDoor, Failures
from ottla.metadata.errors import InvalidConfig
from ottla.testing.embedded import EmbeddedBroker
from ottla.testing.secured import Secured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT = 30.0
"""Seconds until a test gives up waiting for a process."""


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WAIT) as answer:
        text: str = answer.read().decode()
        return text


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def console_door(broker: EmbeddedBroker) -> ConsoleDoor:
    node = broker._node
    assert node is not None
    assert node.console is not None
    return node.console


def test_failures_are_counted() -> None:
    """Case 4, the decision alone."""
    failures = Failures()
    for number in range(MANY):
        assert failures.wait(100.0 + number) == 0.0
        failures.ended(1, 0.1, 100.0 + number)
    assert failures.wait(100.0 + MANY - 1) == PAUSE
    assert failures.wait(100.0 + MANY + PAUSE) == 0.0
    for status, lasted in ((1, 0.1), (1, 0.1), (0, 0.1), (1, 0.1), (1, AT_ONCE), (1, 0.1)):
        failures.ended(status, lasted, 1000.0)
    assert failures.wait(1000.0) == 0.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(console=True, config={"ottla.console.idle.exit.ms": "0"}) as running:
        running.create_topic("orders")
        yield running


@pytest.mark.long
def test_case_3_the_first_connection_gets_its_page(broker: EmbeddedBroker) -> None:
    assert console_door(broker).pid is None
    assert "orders" in get(f"{broker.console_url}c/local/topics")
    assert console_door(broker).pid is not None


@pytest.mark.long
def test_case_4_a_killed_console_is_started_again(broker: EmbeddedBroker) -> None:
    get(f"{broker.console_url}healthz")
    first = console_door(broker).pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: console_door(broker).pid is None)
    assert "orders" in get(f"{broker.console_url}c/local/topics")
    assert console_door(broker).pid not in (None, first)


@pytest.mark.long
def test_case_5_an_idle_console_leaves_and_comes_back() -> None:
    with EmbeddedBroker(console=True, config={"ottla.console.idle.exit.ms": "1000"}) as broker:
        get(f"{broker.console_url}healthz")
        first = console_door(broker).pid
        assert first is not None
        until(lambda: console_door(broker).pid is None)
        assert not is_alive(first)
        get(f"{broker.console_url}healthz")
        assert console_door(broker).pid not in (None, first)
        last = console_door(broker).pid
    assert last is not None
    assert not is_alive(last)  # case 6: the broker stops


@pytest.mark.long
def test_case_66_a_console_beside_a_broker_keeps_its_history_in_a_file(tmp_path: Path) -> None:
    config = {"ottla.console.idle.exit.ms": "1000"}
    with EmbeddedBroker(tmp_path / "data", console=True, config=config) as broker:
        get(f"{broker.console_url}c/local/topics")
        until(lambda: console_door(broker).pid is None)
        assert (tmp_path / "data" / "console" / "history.sqlite").exists()
    with EmbeddedBroker(tmp_path / "data", config={}) as broker:
        assert broker.bootstrap, "the directory is no log"


def start(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", "broker", "--ephemeral", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    # A child belongs to the thread that started it.
    tasks = found.parent.parent.iterdir()
    return [int(one) for task in tasks for one in (task / "children").read_text().split()]


@pytest.mark.long
def test_cases_2_and_6_no_process_without_visitors_none_after_the_broker() -> None:
    process = start("--console-listen", "127.0.0.1:0")
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        ready = process.stdout.readline()
        assert ready.startswith("ottla broker ready: ")
        told = process.stderr.readline()
        url = told.removeprefix("ottla console: ").strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        assert children(process.pid) == []
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert "msgspec" not in maps
        get(f"{url}healthz")
        [child] = children(process.pid)
        process.kill()
        process.wait()
        until(lambda: not is_alive(child))
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.communicate()


@pytest.mark.long
def test_case_2_the_broker_imports_nothing_of_the_console() -> None:
    script = """
import sys
from ottla.testing.embedded import EmbeddedBroker
with EmbeddedBroker(console=True) as broker:
    print(broker.console_url.startswith("http://127.0.0.1:"))
    found = {name.partition(".")[0] for name in sys.modules}
    print(sorted(found & {"starlette", "uvicorn", "jinja2", "msgspec", "msgpack", "cel"}))
    print("ottla.console" in sys.modules)
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines() == ["True", "[]", "False"]


def test_case_7_without_the_extra_the_broker_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "PACKAGES", ("starlette", "not_installed_here"))
    with pytest.raises(CannotListen, match=r"pip install 'ottla\[console\]'"):
        EmbeddedBroker(console=True).start()


@pytest.mark.long
def test_case_8_a_taken_port_and_an_open_one_are_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for address, said in ((f"127.0.0.1:{port}", "in use"), ("0.0.0.0:0", "--insecure")):
            process = start("--console-listen", address)
            out, err = process.communicate(timeout=WAIT)
            assert process.returncode == 2
            assert out == ""
            assert said in err
            assert len(err.splitlines()) == 1


def test_the_console_needs_a_listener_for_people_without_certificates() -> None:
    secured = Secured(users={"bob": "secret"}, client_certificates=True)
    with pytest.raises(InvalidConfig, match="the console has no credentials"):
        EmbeddedBroker(console=True, security=secured).start()


@pytest.mark.long
def test_beside_a_broker_with_sasl_people_log_in_with_their_own() -> None:
    secured = Secured(users={"bob": "very secret"}, protocol="SASL_PLAINTEXT")
    with EmbeddedBroker(console=True, security=secured) as running:
        running.create_topic("orders")
        cookies = urllib.request.HTTPCookieProcessor()
        browser = urllib.request.build_opener(cookies)

        def read(path: str, **form: str) -> str:
            data = urllib.parse.urlencode(form).encode() if form else None
            with browser.open(f"{running.console_url}{path}", data, timeout=WAIT) as answer:
                text: str = answer.read().decode()
                return text

        page = read("c/local/topics")
        assert "user of the cluster" in page
        found = re.search(r'name="token" value="(\w+)"', page)
        assert found is not None
        back = "/c/local/topics"
        page = read("login", token=found[1], name="bob", password="very secret", back=back)
        assert ">orders</bdi>" in page


def test_a_child_that_fails_is_not_tried_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """Case 4: three failures at once, then a pause."""
    listening = socket.create_server(("127.0.0.1", 0))
    command = (sys.executable, "-c", "import sys; sys.stdin.readline(); sys.exit(3)")
    one = ConsoleDoor([listening], {}, command)
    one.start()
    try:
        with socket.create_connection(listening.getsockname()):
            until(lambda: "failed 3 times" in caplog.text)
            assert caplog.text.count("ended with status 3") == 3
    finally:
        one.close()
