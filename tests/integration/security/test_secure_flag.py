"""`ottla broker --secure`: one flag, and what it leaves in the directory (cases 47, 83, 94)."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ottla.broker.running.secure import RENEWED_DAYS, admin_problem
from ottla.broker.running.secure import secured as settings
from ottla.cli.whole import app
from ottla.client.security import Security
from ottla.client.security_properties import read_file
from ottla.metadata.errors import ConfigError
from ottla.metadata.security.first_users import parse_users, user_line
from ottla.metadata.stores.sqlite import SqliteMetadataStore
from ottla.security.certificates import Authority, read_shown, write_authority, write_issued
from ottla.security.errors import CertificateProblem
from tests.support.door_clients import Way, with_confluent
from tests.support.doors import stored

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = [sys.executable, "-m", "ottla.cli"]


@contextmanager
def secured(data: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Its address, and the process."""
    program = [*COMMAND, "broker", "--secure", "--data-dir", str(data)]
    options = options or ("--listen", "127.0.0.1:0")
    with (
        (data.parent / "log").open("a") as log,
        subprocess.Popen(
            [*program, *options, "--log-level", "debug"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            assert ready.startswith("ottla broker ready: "), (data.parent / "log").read_text()
            told = process.stdout.readline()
            assert told == f"client settings of the user admin: {data}/admin.properties\n"
            yield ready.split()[-1], process
        finally:
            process.terminate()
    assert process.returncode == 0


def properties(data: Path) -> dict[str, str]:
    text = (data / "admin.properties").read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


def password_of(data: Path) -> str:
    found = re.search(r'password="([^"]+)"', properties(data)["sasl.jaas.config"])
    assert found is not None
    return found[1]


def files(data: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in [data / "admin.properties", *sorted((data / "tls").iterdir())]
    }


def works(where: str, data: Path) -> bool:
    ca = Path(properties(data)["ssl.truststore.location"])
    way = Way(where, "SASL_SSL", "SCRAM-SHA-512", "admin", password_of(data), ca)
    return with_confluent(way) == [b"one", b"two"]


def test_case_94_a_second_start_uses_what_the_first_made(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secured(data) as (where, process):
        made = files(data)
        assert works(where, data)
        client = ("--command-config", str(data / "admin.properties"))
        listed = subprocess.run(
            [*COMMAND, "topic", "list", "--bootstrap", where, "--json", *client],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "topic" in listed.stdout
        arguments = Path(f"/proc/{process.pid}/cmdline").read_text()
        assert password_of(data) not in arguments
    with secured(data) as (where, _):
        assert files(data) == made
        assert works(where, data)
    everything = (tmp_path / "log").read_text()
    assert password_of(data) not in everything
    store = b"".join(path.read_bytes() for path in data.glob("metadata.db*"))
    assert password_of(data).encode() not in store


def test_case_83_only_the_owner_can_read_what_it_makes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secured(data):
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode)
            for path in [data, data / "tls", *files(data), data / "metadata.db"]
        }
    assert modes.pop("ca.pem") == modes.pop("server.pem") == 0o644
    assert modes.pop("data") == modes.pop("tls") == 0o700
    assert set(modes.values()) == {0o600}
    assert modes.keys() >= {"ca.key", "server.keystore.pem", "admin.user", "admin.properties"}


def test_another_host_is_added_to_the_certificate(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secured(data):
        ca, server = (data / "tls/ca.pem").read_bytes(), (data / "tls/server.pem").read_bytes()
    options = ("--listen", "127.0.0.1:0", "--host", "localhost", "--host", "broker.example")
    with secured(data, *options) as (where, _):
        assert works(where, data)
    with secured(data, "--listen", "127.0.0.1:0", "--host", "other.example"):
        pass
    assert (data / "tls/ca.pem").read_bytes() == ca
    assert (data / "tls/server.pem").read_bytes() != server
    shown = subprocess.run(
        [*COMMAND, "cert", "show", str(data / "tls/server.pem")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "broker.example" in shown.stdout  # a name that clients know stays
    assert "other.example" in shown.stdout


def test_what_is_configured_wins(tmp_path: Path) -> None:
    data = tmp_path / "data"
    options = ("--set", "listeners=SASL_SSL://127.0.0.1:0", "--set", "super.users=User:other")
    with secured(data, *options) as (where, _):
        assert not where.endswith(":9092")


def refused(data: Path, *options: str) -> str:
    run = subprocess.run(
        [*COMMAND, "broker", "--data-dir", str(data), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.returncode, run.stdout) == (2, ""), run.stderr
    assert run.stderr.count("\n") == 1, run.stderr
    return run.stderr


def log_of(data: Path) -> str:
    return (data.parent / "log").read_text()


def test_it_starts_without_the_key_of_its_authority(tmp_path: Path) -> None:
    """Fault: "has ca.pem already; --force replaces them"."""
    data = tmp_path / "data"
    with secured(data):
        (data / "tls/ca.key").unlink()
    made = files(data)
    with secured(data) as (where, _):
        assert works(where, data)
    assert "ca.key" not in log_of(data)
    with secured(data, "--listen", "127.0.0.1:0", "--host", "new.example"):
        pass
    assert files(data) == made
    assert "lacks the names new.example, and there is no ca.key to renew it; put ca.key" in log_of(
        data
    )


def test_a_certificate_that_ends_soon_is_told_without_the_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = tmp_path / "tls"
    ca = Authority.make()
    write_authority(tls, ca)
    (tls / "ca.key").unlink()
    write_issued(tls, "server", ca.server(["127.0.0.1"], days=RENEWED_DAYS - 1))
    settings(tmp_path, "127.0.0.1:0", [])
    assert "expires on " in caplog.text
    assert "no ca.key to renew it; put ca.key" in caplog.text
    (tls / "server.keystore.pem").unlink()
    with pytest.raises(CertificateProblem, match=r"no server certificate .* no ca\.key to make"):
        settings(tmp_path, "127.0.0.1:0", [])


@pytest.mark.parametrize("gone", [["ca.pem"], ["ca.pem", "ca.key"]])
def test_a_lost_authority_is_not_replaced_in_silence(tmp_path: Path, gone: list[str]) -> None:
    """Fault: a new one was made beside the certificate of the old, and every client failed."""
    data = tmp_path / "data"
    with secured(data):
        for name in gone:
            (data / "tls" / name).unlink()
    made = files(data)
    said = refused(data, "--secure", "--listen", "127.0.0.1:0")
    assert "no ca.pem" in said
    assert f"restore ca.pem, or delete {data}/tls" in said
    assert files(data) == made
    # As it was told: the user stays.
    shutil.rmtree(data / "tls")
    with secured(data) as (where, _):
        assert works(where, data)


@pytest.mark.parametrize("kind", ["another", "junk", "not a CA"])
@pytest.mark.parametrize("has_key", [True, False])
def test_an_authority_that_did_not_sign_is_refused(
    tmp_path: Path, kind: str, has_key: bool
) -> None:
    """Fault: the broker started, and no client that had this ca.pem could connect."""
    settings(tmp_path, "127.0.0.1:0", [])
    tls = tmp_path / "tls"
    ca = tls / "ca.pem"
    right = ca.read_bytes()
    if not has_key:
        (tls / "ca.key").unlink()
    damaged = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    junk = {"another": Authority.make().issued.chain, "junk": b"junk", "not a CA": damaged}
    ca.write_bytes(junk[kind])
    with pytest.raises(CertificateProblem, match=r"has not signed .* restore ca\.pem, or delete"):
        settings(tmp_path, "127.0.0.1:0", [])
    settings(tmp_path, "127.0.0.1:0", [], own_store=True)
    ca.write_bytes(Authority.make().issued.chain + right)  # several, as when one is replaced
    settings(tmp_path, "127.0.0.1:0", [])


@pytest.mark.parametrize("host", ["*.example.com", "*", "0.0.0.0", "::", "a b", "ü" * 70])
def test_a_host_that_nobody_can_connect_to_is_refused(tmp_path: Path, host: str) -> None:
    """Fault: the broker told its clients a wildcard."""
    with pytest.raises(CertificateProblem, match="name"):
        settings(tmp_path / "data", "127.0.0.1:0", [host])
    assert list(tmp_path.iterdir()) == []


def test_a_host_is_told_as_its_certificate_has_it(tmp_path: Path) -> None:
    """Fault: clients were told a name that their DNS and the certificate do not have."""
    told = "xn--mnchen-3ya.example"
    for _ in range(2):
        found = settings(tmp_path, "127.0.0.1:9093", ["münchen.example"])
        assert found["advertised.listeners"] == f"SASL_SSL://{told}:9093"
        assert told in read_shown(tmp_path / "tls/server.pem")[0].names
        made = (tmp_path / "tls/server.pem").read_bytes()
    settings(tmp_path, "127.0.0.1:9093", ["münchen.example"])
    assert (tmp_path / "tls/server.pem").read_bytes() == made


@pytest.mark.parametrize("missing", [True, False])
def test_a_client_file_that_lets_nobody_in_is_not_announced(tmp_path: Path, missing: bool) -> None:
    data = tmp_path / "data"
    with secured(data):
        pass
    file = data / "admin.properties"
    if missing:
        file.unlink()
    else:
        file.write_text(file.read_text().replace(password_of(data), "another"))
    program = [*COMMAND, "broker", "--secure", "--data-dir", str(data), "--port", "0"]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ottla broker ready: ")
        process.terminate()  # heeded once everything is announced
        output, said = process.communicate(timeout=20)
    assert str(file) in said
    assert f"ottla user create admin --admin --data-dir {data}" in said
    assert (output, said.count("\n")) == ("", 1)
    assert file.exists() is not missing


@pytest.mark.long
def test_the_way_back_in_writes_the_client_file(tmp_path: Path) -> None:
    """Fault: the command read the lost file, and wrote none."""
    data = tmp_path / "data"
    with secured(data) as (where, _):
        (data / "admin.properties").unlink()
        subprocess.run(
            [*COMMAND, "user", "create", "admin", "--admin", "--generate", "--data-dir", str(data)],
            env={**os.environ, "OTTLA_COMMAND_CONFIG": str(data / "admin.properties")},
            capture_output=True,
            check=True,
        )
    with secured(data) as (where, _):
        assert works(where, data)


@pytest.mark.parametrize("kind", ["missing", "own lines", "another user's", "no --secure"])
def test_a_new_password_of_admin_goes_to_its_file(tmp_path: Path, kind: str) -> None:
    settings(tmp_path, "127.0.0.1:0", [])
    file = tmp_path / "admin.properties"
    old = file.read_text()
    made = f"{old}# mine\n" if kind == "own lines" else old.replace('"admin"', '"other"')
    if kind in ("missing", "no --secure"):
        file.unlink()
    else:
        file.write_text(made)
    if kind == "no --secure":
        shutil.rmtree(tmp_path / "tls")
    password = 'sword\\fish "ü"'
    done = CliRunner().invoke(
        app,
        ["user", "create", "admin", "--data-dir", str(tmp_path), "--password-file", "-"],
        input=password,
        env={"OTTLA_COMMAND_CONFIG": str(tmp_path / "none")},
    )
    assert done.exit_code == 0, done.output
    if kind == "no --secure":
        assert not file.exists()
    elif kind == "another user's":
        assert file.read_text() == made
    else:
        assert f"wrote {file}\n" in done.output
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert ("# mine" in file.read_text()) is (kind == "own lines")
        found = Security.from_properties(read_file(file))
        assert (found.sasl_username, found.sasl_password) == ("admin", password)
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        image = store.snapshot()
        store.close()
        assert admin_problem(tmp_path, image) is None


def test_a_forgotten_secure_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secured(data):
        pass
    program = [*COMMAND, "broker", "--data-dir", str(data), "--port", "0"]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ottla broker ready: ")
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert errors.count("\n") == 1, errors
    assert "users and ACLs in this directory are not looked at" in errors
    assert "use --secure, or set listeners=SASL_SSL" in errors
    assert process.returncode == 0


@pytest.mark.parametrize("kind", ["missing", "directory"])
def test_an_audit_file_that_cannot_be_written_is_refused(tmp_path: Path, kind: str) -> None:
    """Fault: it was found with the first line, which was lost."""
    file = tmp_path / "nowhere" / "audit" if kind == "missing" else tmp_path
    said = refused(tmp_path / "data", "--port", "0", "--set", f"ottla.audit.file={file}")
    assert f"ottla.audit.file: expected a file that can be opened for appending, got {file}" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--secure", "--insecure"], "contradict each other"),
        (["--secure", "--ephemeral"], "leave out --ephemeral"),
        (["--host", "x"], "add --secure"),
        (["--secure", "--listen", "9092"], "--listen takes HOST:PORT"),
        (
            ["--secure", "--listen", "127.0.0.1:0", "--set", "listeners=SASL_SSL://127.0.0.1:0"],
            "--listen and --set listeners contradict each other",
        ),
    ],
)
def test_options_that_do_not_go_together(options: list[str], message: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [*COMMAND, "broker", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )
    assert run.returncode == 2
    assert message in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_case_47_a_file_of_users() -> None:
    credential = stored("a:b", "secret", "SCRAM-SHA-256")
    text = f"# made by ottla user hash\n\n{user_line('a:b', 'SCRAM-SHA-256', credential)}\n"
    (change,) = parse_users(text)
    assert (change.user, change.mechanism, change.credential) == (
        "a:b",
        "SCRAM-SHA-256",
        credential,
    )


@pytest.mark.parametrize(
    "line",
    [
        "alice",
        "alice:SCRAM-SHA-1:4096:c2FsdHNhbHQ=:AAAA:AAAA",
        "alice:SCRAM-SHA-256:1:c2FsdHNhbHQ=:AAAA:AAAA",
        "alice:SCRAM-SHA-256:x:c2FsdHNhbHQ=:AAAA:AAAA",
        "alice:SCRAM-SHA-256:4096:???:AAAA:AAAA",
        "__node:SCRAM-SHA-256:4096:c2FsdHNhbHQ=:AAAA:AAAA",
    ],
)
def test_a_line_that_is_no_user_is_named(line: str) -> None:
    with pytest.raises(ConfigError, match=r"ottla\.bootstrap\.user\.file, line 2") as refused:
        list(parse_users(f"\n{line}"))
    assert "c2Fsd" not in str(refused.value)
