"""Places that cannot be written: what to do is said."""

from __future__ import annotations

import errno
import os
import sqlite3

import pytest

from ottla.objects.errors import RetriableRemoteError
from ottla.tables.remedies import CATALOGUE, SPOOL, WAREHOUSE, remedy


def _os(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_names_how_to_get_space(number: int) -> None:
    assert f"{WAREHOUSE} is full: free space" in remedy(_os(number))
    assert "TMPDIR" in remedy(_os(number), SPOOL)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_place_without_permission_names_who_must_write(number: int) -> None:
    assert f"{WAREHOUSE} cannot be written: let this user" in remedy(_os(number))


def test_the_cause_of_an_error_of_a_store_counts() -> None:
    error = RetriableRemoteError("the directory fails")
    error.__cause__ = _os(errno.ENOSPC)
    assert "is full" in remedy(error)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("attempt to write a readonly database", f"{CATALOGUE} cannot be written"),
        ("database or disk is full", f"{CATALOGUE} is full"),
        ("unable to open database file", "make its directory"),
    ],
)
def test_sqlite_has_words_alone(said: str, advice: str) -> None:
    assert advice in remedy(sqlite3.OperationalError(said))


@pytest.mark.parametrize("error", [_os(errno.EIO), ValueError("x"), TimeoutError()])
def test_of_others_nothing_is_said(error: Exception) -> None:
    assert remedy(error) == ""
