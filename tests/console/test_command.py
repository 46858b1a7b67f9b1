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


def test_case_1_three_topics_and_a_clean_stop(broker: EmbeddedBroker, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        broker.create_topic(name)
    state = str(tmp_path / "state")
    process = start("--bootstrap", broker.bootstrap, "--listen", "127.0.0.1:0", "--state", state)
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
        assert (tmp_path / "state" / "history.sqlite").exists()
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
    assert "needs tls_cert and tls_key" in refused("--listen", "https://127.0.0.1:0")


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


def run(*arguments: str) -> tuple[int, str]:
    process = start(*arguments)
    out, err = process.communicate(timeout=WAIT)
    return process.returncode, out + err


def test_users_tokens_and_dashboards_are_written(tmp_path: Path) -> None:
    users, tokens = tmp_path / "users.toml", tmp_path / "tokens.toml"
    secret = tmp_path / "secret"
    secret.write_text("correct horse\n")
    add = ("user", "add", "anna", "--role", "admin", "--users-file", str(users))
    assert run(*add, "--password-file", str(secret)) == (0, f"added anna in {users}\n")
    status, said = run(*add, "--generate")
    assert status == 0
    assert said.startswith(f"changed anna in {users}\npassword: ")
    assert "horse" not in users.read_text()
    status, token = run(
        "token", "add", "prometheus", "--role", "viewer", "--tokens-file", str(tokens)
    )
    assert status == 0
    assert token.strip() not in tokens.read_text()
    status, said = run("dashboards", str(tmp_path / "made"))
    assert status == 0
    assert sorted(one.name for one in (tmp_path / "made").iterdir()) == [
        "alerts.yaml",
        "ottla.json",
    ]
    assert run("user", "add", "anna", "--role", "boss")[0] == 2
