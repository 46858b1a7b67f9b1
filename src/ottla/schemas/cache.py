"""Schemas by id and GUID, asked for once: what decoders use.

An id or a GUID never changes its schema, so what is known is kept, the last `MAX_KNOWN` of them.
That there is none is kept for `MISSING_SECONDS`: it may be registered yet. A registry that does not
answer raises; that is no answer.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote
from uuid import UUID

from ottla.schemas.parsing import resolve
from ottla.schemas.registry_client import RegistryRefused, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.schemas.model import Reference, Schema
    from ottla.schemas.registry_client import BlockingRegistry

MAX_KNOWN: Final = 10_000
MISSING_SECONDS: Final = 5.0
MAX_ID: Final = 2**31 - 1


class SchemaCache:
    """A resolver over a registry; waits for what it has not seen. May be shared by threads."""

    def __init__(
        self, registry: BlockingRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._known: dict[int | bytes | Reference, Schema] = {}
        self._missing: dict[int | bytes | Reference, float] = {}
        self._lock = threading.Lock()

    def by_id(self, number: int) -> Schema | None:
        if not 1 <= number <= MAX_ID:
            return None
        return self._found(number, f"/schemas/ids/{number}")

    def by_guid(self, guid: bytes) -> Schema | None:
        return self._found(guid, f"/schemas/guids/{UUID(bytes=guid)}")

    def references(self, schema: Schema) -> dict[str, str]:
        """Texts of all references by name, those of references included."""
        return resolve(schema, self._referred)

    def latest(self, subject: str) -> Schema | None:
        """The newest version of a subject, asked for by each call; None if there is none."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        try:
            return schema_of(self._registry.request("GET", path))
        except RegistryRefused as refused:
            if refused.status != 404:
                raise
            return None

    def close(self) -> None:
        self._registry.close()

    def _referred(self, reference: Reference) -> Schema | None:
        subject = quote(reference.subject, safe="")
        return self._found(reference, f"/subjects/{subject}/versions/{reference.version}")

    def _found(self, key: int | bytes | Reference, path: str) -> Schema | None:
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                return known
            if self._missing.get(key, 0.0) > self._clock():
                return None
        try:
            schema = schema_of(self._registry.request("GET", path))
        except RegistryRefused as refused:
            if refused.status != 404:
                raise
            with self._lock:
                _bounded(self._missing, key)
                self._missing[key] = self._clock() + MISSING_SECONDS
            return None
        with self._lock:
            self._missing.pop(key, None)
            _bounded(self._known, key)
            self._known[key] = schema
        return schema


def _bounded(
    entries: dict[int | bytes | Reference, Schema] | dict[int | bytes | Reference, float],
    key: object,
) -> None:
    """Make room for one more; the oldest goes."""
    if len(entries) >= MAX_KNOWN and key not in entries:
        del entries[next(iter(entries))]
