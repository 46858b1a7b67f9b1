"""Files of tables in object stores, for readers.

`store` has settings of the object store, under their names in `rsm.config.*` without that prefix:
`endpoint`, `region` and others. What is missing comes from the environment: AWS_ENDPOINT_URL,
AWS_REGION, AWS_ACCESS_KEY_ID and so on.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ottla.client.errors import BadArgument
from ottla.objects.location import PREFIX, URL_KEY, BadLocation, parse_location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyarrow.fs import FileSystem

S3: Final = ("s3", "s3a")
# The names of the store's library, of pyarrow, and of pyiceberg.
_OF_S3: Final = (
    ("endpoint", "endpoint_override", "s3.endpoint"),
    ("region", "region", "s3.region"),
    ("access_key_id", "access_key", "s3.access-key-id"),
    ("secret_access_key", "secret_key", "s3.secret-access-key"),
    ("session_token", "session_token", "s3.session-token"),
)
_VARIABLES: Final = {
    "endpoint": ("AWS_ENDPOINT_URL",),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}


def file_system(url: str, store: Mapping[str, str]) -> FileSystem:
    """The file system of pyarrow's that opens a URL."""
    from pyarrow import fs

    if urlsplit(url).scheme not in S3:
        found, _ = fs.FileSystem.from_uri(url)
        return found
    settings = _settings(url, store)
    named = {ours: settings[name] for name, ours, _ in _OF_S3 if name in settings}
    return _s3(tuple(sorted(named.items())))


def path_of(url: str) -> str:
    """The path of a URL in its file system."""
    from pyarrow import fs

    scheme, _, rest = url.partition("://")
    if scheme in S3:
        return rest
    return str(fs.FileSystem.from_uri(url)[1])


def iceberg_properties(url: str, store: Mapping[str, str]) -> dict[str, str]:
    """The properties with which pyiceberg opens a URL."""
    if urlsplit(url).scheme not in S3:
        return {}
    settings = _settings(url, store)
    return {theirs: settings[name] for name, _, theirs in _OF_S3 if name in settings}


@lru_cache(maxsize=16)
def _s3(settings: tuple[tuple[str, str], ...]) -> FileSystem:
    from pyarrow.fs import S3FileSystem

    return S3FileSystem(**dict(settings))


def _settings(url: str, store: Mapping[str, str]) -> dict[str, str]:
    bucket = urlsplit(url).netloc
    config = {URL_KEY: f"s3://{bucket}/", **{PREFIX + name: text for name, text in store.items()}}
    try:
        found = dict(parse_location(config).options)
    except BadLocation as error:
        raise BadArgument(f"store: {error}") from None
    for name, variables in _VARIABLES.items():
        told = next((os.environ[one] for one in variables if os.environ.get(one)), None)
        if told is not None:
            found.setdefault(name, told)
    return found
