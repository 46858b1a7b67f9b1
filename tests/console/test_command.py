"""`ottla console` as a process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.embedded import EmbeddedBroker

WAIT = 30.0

pytestmark = pytest.mark.long


def start(*options: str) -> subprocess.Popen[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("OTTLA_")}
    return subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", "console", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


def test_case_1_three_topics_and_a_clean_stop(broker: EmbeddedBroker) -> None:
    for name in ("one", "two", "three"):
        broker.create_topic(name)
    process = start("--bootstrap", broker.bootstrap, "--listen", "127.0.0.1:0")
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        found = re.fullmatch(r"ottla console ready: (http://127\.0\.0\.1:\d+/)\n", ready)
        assert found is not None, ready + process.communicate(timeout=WAIT)[1]
        with urllib.request.urlopen(found[1], timeout=WAIT) as answer:
            page = answer.read().decode()
        for name in ("one", "two", "three"):
            assert f">{name}</bdi>" in page
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WAIT)
        assert (process.returncode, out, err) == (0, "", "")
    finally:
        process.kill()
        process.communicate()


def refused(*options: str) -> str:
    process = start(*options)
    out, err = process.communicate(timeout=WAIT)
    assert process.returncode == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    return err


def test_case_8_a_taken_port_and_an_open_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "--listen" in refused("--listen", f"127.0.0.1:{port}")
    assert "asks for no login" in refused("--listen", "0.0.0.0:0")


def test_case_9_a_wrong_key(tmp_path: Path) -> None:
    file = tmp_path / "console.toml"
    file.write_text("serch_max_s = 3")
    assert "did you mean 'search_max_s'" in refused("--config", str(file))


def test_case_72_credentials_and_no_login(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=PLAINTEXT\n")
    said = refused("--command-config", str(file), "--listen", "127.0.0.1:0")
    assert "everybody on this machine" in said


@pytest.mark.parametrize("options", [("--listen", "nonsense"), ("--bootstrap", "h:port")])
def test_wrong_use_is_a_sentence(options: tuple[str, ...]) -> None:
    process = start(*options)
    _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 2
    assert "Traceback" not in err
