"""The small CA: what it writes, what it refuses (case 19, the part without foreign judges)."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from ottla.security.certificates import (
    MAX_DAYS,
    Authority,
    new_password,
    read_authority,
    read_shown,
    write_authority,
    write_issued,
)
from ottla.security.errors import CertificateProblem
from tests.support.tls import ago, authority

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.security.certificates import Issued


def leaf_of(issued: Issued) -> x509.Certificate:
    return x509.load_pem_x509_certificates(issued.chain)[0]


def test_19_the_ca_signs_leaves_only() -> None:
    ca = leaf_of(authority().issued)
    constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    usage = ca.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert not usage.digital_signature


def test_19_serial_numbers_are_random() -> None:
    numbers = {leaf_of(authority().client("a")).serial_number for _ in range(20)}
    assert len(numbers) == 20
    assert min(number.bit_length() for number in numbers) > 64


def test_19_a_leaf_ends_no_later_than_its_ca() -> None:
    ca = Authority.make("short", days=10)
    assert leaf_of(ca.server(["a"])).not_valid_after_utc == leaf_of(ca.issued).not_valid_after_utc
    with pytest.raises(CertificateProblem, match="1 to 36500 days"):
        ca.server(["a"], days=0)


def test_19_names_of_servers(tmp_path: Path) -> None:
    hosts = ["broker.example.com", "10.0.0.1", "::1", "*.example.com", "bücher.example", "a_b"]
    write_issued(tmp_path, "server", authority().server(hosts))
    leaf, ca = read_shown(tmp_path / "server.pem")
    assert leaf.names == (*hosts[:4], "xn--bcher-kva.example", "a_b")
    assert (leaf.subject, leaf.is_authority, ca.is_authority) == (
        "CN=broker.example.com",
        False,
        True,
    )
    assert leaf.issuer == ca.subject == "CN=test CA"
    assert leaf.days_left(datetime.now(UTC)) in (396, 397)


@pytest.mark.parametrize("host", ["", "a b", "a/b", "-a", "a..b", "*", "a.*.b", "x" * 70 + " "])
def test_19_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(CertificateProblem, match="neither a host name nor an address"):
        authority().server([host])


def test_19_a_long_host_name_is_an_alternative_name() -> None:
    host = "x" * 60 + ".example.com"
    leaf = leaf_of(authority().server([host]))
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [host]


def test_19_subjects_of_clients(tmp_path: Path) -> None:
    issued = authority().client("alice", subject="CN=alice,OU=billing,O=Example\\, Inc")
    write_issued(tmp_path, "client-alice", issued)
    rules = "RULE:^CN=(.*?),OU=billing.*$/$1/U"
    mapped, _ = read_shown(tmp_path / "client-alice.pem", rules)
    assert mapped.subject == r"CN=alice,OU=billing,O=Example\, Inc"
    assert mapped.principal == "User:ALICE"
    unmapped, _ = read_shown(tmp_path / "client-alice.pem", "RULE:nobody/x/")
    assert unmapped.principal is None
    with pytest.raises(CertificateProblem, match="is not a subject"):
        authority().client("alice", subject="alice")
    with pytest.raises(CertificateProblem, match="1 to 64"):
        authority().client("a" * 65)


def test_19_keys_are_private_and_nothing_is_overwritten(tmp_path: Path) -> None:
    directory = tmp_path / "tls"
    old = os.umask(0)
    try:
        written = write_authority(directory, authority())
        written += write_issued(
            directory,
            "server",
            authority().server(["localhost"]),
            p12_password="canary",
            writes_password=True,
        )
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes == {
        "ca.pem": 0o644,
        "ca.key": 0o600,
        "server.pem": 0o644,
        "server.key": 0o600,
        "server.keystore.pem": 0o600,
        "server.p12": 0o600,
        "server.p12.password": 0o600,
    }
    assert {path.name for path in written} == set(modes)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700

    before = {path: path.read_bytes() for path in directory.iterdir()}
    (directory / "server.pem").unlink()
    with pytest.raises(CertificateProblem, match=r"server\.key, server\.keystore\.pem already"):
        write_issued(directory, "server", authority().server(["localhost"]))
    with pytest.raises(CertificateProblem, match="--force"):
        write_authority(directory, authority())
    assert not (directory / "server.pem").exists()  # all or none
    assert read_authority(directory) == authority()
    write_issued(directory, "server", authority().server(["localhost"]), force=True)
    assert (directory / "server.key").read_bytes() != before[directory / "server.key"]
    assert [path.name for path in directory.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden", "a\x00", "a b"])
def test_19_names_that_are_no_file_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CertificateProblem, match="file name"):
        write_issued(tmp_path, name, authority().client("x"))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_a_usable_ca_says_so(tmp_path: Path) -> None:
    with pytest.raises(CertificateProblem, match=rf"ottla cert ca {tmp_path}"):
        read_authority(tmp_path)
    write_authority(tmp_path, Authority.make("old", days=1, now=ago(10)))
    with pytest.raises(CertificateProblem, match="expired on"):
        read_authority(tmp_path)
    (tmp_path / "ca.pem").write_bytes(authority().issued.chain)
    with pytest.raises(CertificateProblem, match="does not belong"):
        read_authority(tmp_path)
    (tmp_path / "ca.key").write_text("nonsense")
    with pytest.raises(CertificateProblem, match="cannot be read"):
        read_authority(tmp_path)


def test_files_without_certificates_are_named(tmp_path: Path) -> None:
    with pytest.raises(CertificateProblem, match="cannot read"):
        read_shown(tmp_path / "nothing")
    (tmp_path / "x").write_text("x")
    with pytest.raises(CertificateProblem, match="has no certificate"):
        read_shown(tmp_path / "x")


def test_keys_are_not_in_reprs_and_passwords_are_long() -> None:
    assert "PRIVATE" not in repr(authority())
    assert len({new_password() for _ in range(10)}) == 10
    assert len(new_password()) == 24


def test_certificates_are_valid_a_little_before_now() -> None:
    leaf = leaf_of(authority().client("x"))
    assert leaf.not_valid_before_utc < datetime.now(UTC) - timedelta(minutes=4)


@pytest.mark.parametrize("days", [MAX_DAYS + 1, 99_999_999])
def test_days_have_a_bound(days: int) -> None:
    """Fault: OverflowError."""
    with pytest.raises(CertificateProblem, match="1 to 36500 days"):
        Authority.make(days=days)


def test_a_certificate_of_a_hundred_years() -> None:
    leaf = leaf_of(Authority.make(days=MAX_DAYS).server(["a"], days=MAX_DAYS))
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc > timedelta(days=MAX_DAYS)
