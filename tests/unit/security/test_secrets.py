"""Secrets in files and variables, and the fence around them (cases 86, 107)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.security.secrets import (
    DEFAULT_DIRECTORIES,
    MAX_SECRET_BYTES,
    Fence,
    SecretRefused,
    read_secret,
    with_secrets,
)

KEYS = frozenset({"sasl.password"})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    found = tmp_path / "secrets"
    found.mkdir()
    (found / "password").write_text("canary\n")
    (tmp_path / "outside").write_text("canary")
    return found


def fence(directory: Path, **environment: str) -> Fence:
    return Fence.of({"OTTLA_SECRET_DIRS": str(directory), **environment})


@pytest.mark.parametrize(
    ("content", "secret"),
    [(b"p\n", "p"), (b"p\r\n", "p"), (b"p", "p"), (b" p \n\n", " p \n"), (b"", "")],
)
def test_one_line_break_is_cut(tmp_path: Path, content: bytes, secret: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert read_secret(path, "key") == secret


def test_files_that_cannot_be_secrets(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"x" * (MAX_SECRET_BYTES + 1))
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    for path, said in (
        (big, "longer than 65536"),
        (binary, "not UTF-8"),
        (tmp_path, "cannot read"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(SecretRefused, match=f"key: .*{said}"):
            read_secret(path, "key")


def test_a_secret_below_an_allowed_directory(directory: Path) -> None:
    given = {"sasl.password.file": str(directory / "password"), "sasl.username": "u"}
    found = with_secrets(given, KEYS, fence(directory))
    assert found == {"sasl.password": "canary", "sasl.username": "u"}


def test_a_secret_in_a_variable(directory: Path) -> None:
    given = {"sasl.password.env": "OTTLA_SECRET_P"}
    found = with_secrets(given, KEYS, fence(directory, OTTLA_SECRET_P="canary"))
    assert found == {"sasl.password": "canary"}


def test_what_is_outside_the_fence_is_refused_case_107(directory: Path) -> None:
    link = directory / "link"
    link.symlink_to(directory.parent / "outside")
    inner = directory / "inner"
    inner.symlink_to(directory.parent)
    for path in (
        "/etc/hostname",
        str(directory.parent / "outside"),
        str(link),
        str(inner / "outside"),
        str(directory / ".." / "outside"),
        str(directory) + "-other/file",
        "relative",
    ):
        with pytest.raises(SecretRefused, match="not below OTTLA_SECRET_DIRS") as failure:
            with_secrets({"sasl.password.file": path}, KEYS, fence(directory))
        assert "canary" not in str(failure.value)
    for name in ("HOME", "OTTLA_SECRET_DIRS", "ottla_secret_x"):
        with pytest.raises(SecretRefused, match="must begin with OTTLA_SECRET_"):
            with_secrets({"sasl.password.env": name}, KEYS, fence(directory))
    with pytest.raises(SecretRefused, match="OTTLA_SECRET_NONE is not set"):
        with_secrets({"sasl.password.env": "OTTLA_SECRET_NONE"}, KEYS, fence(directory))


def test_a_directory_that_is_a_link_is_fine(directory: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(directory)
    given = {"sasl.password.file": str(link / "password")}
    assert with_secrets(given, KEYS, fence(link))["sasl.password"] == "canary"


def test_defaults_of_the_fence() -> None:
    assert [str(one) for one in Fence.of({}).directories] == DEFAULT_DIRECTORIES.split(":")
    assert Fence.of({"OTTLA_SECRET_DIRS": ":relative::/a"}).directories == (Path("/a"),)


def test_two_places_contradict(directory: Path) -> None:
    given = {"sasl.password": "x", "sasl.password.env": "OTTLA_SECRET_P"}
    with pytest.raises(SecretRefused, match="contradict each other"):
        with_secrets(given, KEYS, fence(directory))


def test_text_is_not_expanded_case_86(directory: Path) -> None:
    given = {"sasl.password": "${env:HOME}", "sasl.username": "${file:/etc/passwd:root}"}
    assert with_secrets(given, KEYS, fence(directory)) == given
