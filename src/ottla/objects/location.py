"""Where remote segments live: `rsm.config.url` and its companions.

    s3://bucket/prefix   gs://bucket/prefix   az://container/prefix   file:///directory   memory:

Credentials, region and endpoint come from `rsm.config.*` keys or, where those are absent, from the
environment variables of the service's own tools (AWS_ACCESS_KEY_ID, ...). A secret never appears in
the text form of a location.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from ottla.objects.local import LocalStore
from ottla.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.objects.store import ObjectStore

URL_KEY: Final = "rsm.config.url"
PREFIX: Final = "rsm.config."

# Our key, and the store library's name for it.
_OPTIONS: Final[dict[str, dict[str, str]]] = {
    "s3": {
        "endpoint": "endpoint",
        "region": "region",
        "access.key.id": "access_key_id",
        "secret.access.key": "secret_access_key",
        "session.token": "session_token",
        "skip.signature": "skip_signature",
        "unsigned.payload": "unsigned_payload",
        "virtual.hosted.style.request": "virtual_hosted_style_request",
        "server.side.encryption": "server_side_encryption",
        "sse.kms.key.id": "sse_kms_key_id",
    },
    "gs": {
        "service.account": "service_account",
        "service.account.key": "service_account_key",
        "skip.signature": "skip_signature",
    },
    "az": {
        "endpoint": "endpoint",
        "account.name": "account_name",
        "account.key": "account_key",
        "sas.key": "sas_key",
    },
    "file": {},
    "memory": {},
}


class BadLocation(ValueError):
    """Invalid location of a store."""


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Where an object store is. `prefix` is empty or ends with a slash."""

    kind: str
    bucket: str
    prefix: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return "memory:" if self.kind == "memory" else f"{self.kind}://{self.bucket}/{self.prefix}"


def parse_location(config: Mapping[str, str]) -> StoreLocation:
    """Parse `rsm.config.url` and the other `rsm.config.*` keys."""
    url = config.get(URL_KEY, "")
    parts = urlsplit(url)
    if parts.scheme not in _OPTIONS:
        kinds = ", ".join(_OPTIONS)
        raise BadLocation(f"{URL_KEY}: expected a URL of {kinds}, got {redact(url)!r}")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise BadLocation(f"{URL_KEY}: leave credentials and options to other {PREFIX}* keys")
    if parts.scheme == "memory":
        return StoreLocation("memory", "", "")
    path = unquote(parts.path)
    if parts.scheme == "file":
        if parts.netloc or not path.startswith("/") or path == "/":
            raise BadLocation(
                f"{URL_KEY}: expected file:///absolute/directory, got {redact(url)!r}"
            )
        return StoreLocation("file", path.rstrip("/"), "")
    if not parts.netloc:
        raise BadLocation(
            f"{URL_KEY}: expected {parts.scheme}://bucket/prefix, got {redact(url)!r}"
        )
    names = _OPTIONS[parts.scheme]
    given = {key.removeprefix(PREFIX): value for key, value in config.items() if key != URL_KEY}
    options = {names[key]: value for key, value in given.items() if key in names}
    inner = path.strip("/")
    return StoreLocation(parts.scheme, parts.netloc, f"{inner}/" if inner else "", options)


def open_store(location: StoreLocation) -> ObjectStore:
    """Open the store of a location; it connects with the first request."""
    if location.kind == "file":
        return LocalStore(Path(location.bucket))
    from ottla.objects.cloud import cloud_store, memory_store

    if location.kind == "memory":
        return memory_store()
    return cloud_store(location.kind, location.bucket, location.options)
