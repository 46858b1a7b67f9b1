"""Errors of object stores, by what the caller should do.

`RetriableRemoteError` passes: try again later, never answer "missing". `RemoteNotFound` says that
the object certainly does not exist. Any other `RemoteStorageError` needs an operator.
"""

from __future__ import annotations


class RemoteStorageError(Exception):
    """The store cannot do what was asked, and a retry will not help."""


class RetriableRemoteError(RemoteStorageError):
    """The store failed for now; whether a write took effect is unknown."""


class RemoteNotFound(RemoteStorageError):
    """The object, index or catalogue entry does not exist."""
