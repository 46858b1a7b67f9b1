"""Certificates of listeners are replaced while the broker runs (case 13, without a socket)."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pytest

from ottla.broker.access.certificates import (
    DAY_SECONDS,
    Allowed,
    Certificates,
    refusal,
    warning,
)
from ottla.broker.access.listeners import Listener
from ottla.broker.workers import Workers
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.errors import InvalidConfig
from ottla.security.contexts import Certificate, client_context
from tests.support.clocks import SteppedClock
from tests.support.tls import ago, authority, ends, opened, server_issued, talk, trusts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.security.certificates import Issued

HOSTS = ["localhost", "127.0.0.1"]


def write(path: Path, issued: Issued) -> None:
    replace(path, issued.store)


def replace(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.chmod(0o600)
    new.replace(path)


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "server.keystore.pem"
    write(path, server_issued())
    return path


def certificates(
    store: Path, workers: Workers, *sets: str, clock: SteppedClock | None = None
) -> Certificates:
    config = load_broker_config(
        sets=[
            "listeners=OUT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "listener.security.protocol.map=OUT:SSL,PLAINTEXT:PLAINTEXT",
            f"listener.name.out.ssl.keystore.location={store}",
            *sets,
        ]
    )
    listeners = [Listener("OUT", "127.0.0.1", 0, "SSL"), Listener("PLAINTEXT", "127.0.0.1", 0)]
    return Certificates(config, listeners, workers, clock or SteppedClock())


def shown_days(made: Certificates) -> int:
    return round(made.seconds_left()["OUT"] / DAY_SECONDS)


async def test_13_a_new_certificate_is_taken(
    store: Path, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    made = certificates(store, workers)
    client = client_context(trusts(authority()))
    before = opened(made.context("OUT"), client)
    old = made.context("OUT")
    await made.reload()
    assert made.context("OUT") is old  # nothing has changed

    write(store, authority().server(HOSTS, days=100))
    with caplog.at_level(logging.INFO):
        await made.reload()
    assert "listener OUT: new certificate taken" in caplog.text
    assert made.context("OUT") is not old
    assert shown_days(made) == 100
    opened(made.context("OUT"), client)
    # The old connection goes on.
    before[0].channel.send([b"still here"])
    talk(*before)
    assert bytes(before[1].sink.data) == b"still here"
    assert made.failures == 0


async def test_13_a_broken_file_keeps_the_old_and_is_tried_again(
    store: Path, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    made = certificates(store, workers)
    old = made.context("OUT")
    other = authority().server(HOSTS, days=100)
    replace(store, server_issued().key + other.chain)  # its key comes later
    for _ in range(3):
        await made.reload()
    assert made.context("OUT") is old
    assert made.failures == 3
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        "listener OUT keeps its certificate: listener.name.out.ssl.keystore.location: "
        "the private key does not belong to the first certificate"
    )
    write(store, other)
    await made.reload()
    assert shown_days(made) == 100


async def test_13_a_missing_file_keeps_the_old(store: Path, workers: Workers) -> None:
    made = certificates(store, workers)
    store.rename(store.with_suffix(".away"))  # noqa: ASYNC240
    await made.reload()
    assert made.failures == 1
    write(store, server_issued())
    await made.reload()
    assert made.failures == 1


@pytest.mark.parametrize(
    ("hosts", "said", "allows"),
    [
        (["other", *HOSTS], "ssl.allow.dn.changes=true", "ssl.allow.dn.changes=true"),
        (HOSTS[:1], "lacks the names 127.0.0.1; ssl.allow.san", "ssl.allow.san.changes=true"),
    ],
)
async def test_13_another_subject_or_fewer_names_are_refused_unless_allowed(
    store: Path,
    workers: Workers,
    caplog: pytest.LogCaptureFixture,
    hosts: list[str],
    said: str,
    allows: str,
) -> None:
    strict, loose = certificates(store, workers), certificates(store, workers, allows)
    write(store, authority().server(hosts, days=100))
    await strict.reload()
    await loose.reload()
    assert said in caplog.text
    assert (strict.failures, loose.failures) == (1, 0)
    assert shown_days(strict) == 397
    assert shown_days(loose) == 100


async def test_13_a_certificate_that_becomes_valid_is_taken_then(
    store: Path, workers: Workers
) -> None:
    clock = SteppedClock()
    made = certificates(store, workers, clock=clock)
    write(store, authority().server(HOSTS, days=100, now=ago(-1)))
    await made.reload()
    assert made.failures == 1
    clock.step(2 * DAY_SECONDS * 1000)
    await made.reload()
    assert shown_days(made) == 99


async def test_a_revoked_client_is_refused_after_a_reload(
    store: Path, workers: Workers, tmp_path: Path
) -> None:
    from tests.unit.security.test_contexts import client_with, revocation_list

    revoked = authority().client("mallory")
    crl, trusted = tmp_path / "crl.pem", tmp_path / "ca.pem"
    trusted.write_bytes(authority().issued.chain)
    crl.write_bytes(revocation_list(authority()))
    made = certificates(
        store,
        workers,
        "ssl.client.auth=required",
        f"ssl.truststore.location={trusted}",
        f"ottla.ssl.crl.location={crl}",
    )
    opened(made.context("OUT"), client_with(revoked))
    crl.write_bytes(revocation_list(authority(), revoked))
    await made.reload()
    pair = ends(made.context("OUT"), client_with(revoked))
    talk(*pair)
    assert "revoked" in str(pair[1].channel.fault)


async def test_a_certificate_that_ends_soon_is_told_once_a_day(
    tmp_path: Path, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "server.pem"
    write(path, authority().server(HOSTS, days=20))
    clock = SteppedClock()
    made = certificates(path, workers, clock=clock)
    await made.reload()
    assert not caplog.text
    clock.step(10 * DAY_SECONDS * 1000)
    for _ in range(3):
        await made.reload()
    assert caplog.text.count("the certificate expires in 9 days") == 1
    clock.step(11 * DAY_SECONDS * 1000)
    await made.reload()
    assert "has expired" in caplog.text
    assert made.seconds_left()["OUT"] < 0


async def test_a_store_that_cannot_be_used_is_named(store: Path, workers: Workers) -> None:
    with pytest.raises(InvalidConfig) as refused:
        certificates(store, workers, "listener.name.out.ssl.keystore.location=/nowhere")
    assert str(refused.value) == (
        "invalid configuration value in listener.name.out.ssl.keystore.location: expected one that "
        "TLS can use, got one that it cannot: cannot read /nowhere: No such file or directory"
    )
    replace(store, b"-----BEGIN NOTHING-----")
    with pytest.raises(InvalidConfig, match=f"cannot: {store}: has no private key"):
        certificates(store, workers)


@pytest.mark.parametrize(
    ("setting", "where"),
    [
        ("listener.name.out.ssl.keystore.location=/nowhere", "listener.name.out.ssl.keystore"),
        ("ssl.client.auth=required", "ssl.truststore.location"),
        ("ssl.cipher.suites=TLS_NULL", "ssl.cipher.suites"),
        ("listener.name.out.ssl.principal.mapping.rules=x", "listener.name.out.ssl.principal"),
    ],
)
async def test_wrong_settings_at_start_name_the_key(
    store: Path, workers: Workers, setting: str, where: str
) -> None:
    with pytest.raises(InvalidConfig, match=where):
        certificates(store, workers, setting)


def certificate(subject: str, *names: str, ends: float = 0) -> Certificate:
    return Certificate(
        (("commonName", subject),), frozenset(("DNS", name) for name in names), 0, ends
    )


def test_names_may_be_added() -> None:
    assert refusal(certificate("a", "a"), certificate("a", "a", "b"), Allowed()) is None
    assert refusal(certificate("a", "a"), certificate("a", "b"), Allowed()) is not None
    assert refusal(certificate("a", "a"), certificate("b", "a"), Allowed()) is not None
    assert refusal(certificate("a", "a"), certificate("b"), Allowed(True, True)) is None


def test_warnings_begin_two_weeks_before_the_end() -> None:
    now = time.time()
    assert warning(certificate("a", ends=now + 15 * DAY_SECONDS), now) is None
    assert warning(certificate("a", ends=now + 13.5 * DAY_SECONDS), now) == "expires in 13 days"
    assert "expired" in (warning(certificate("a", ends=now - 1), now) or "")
