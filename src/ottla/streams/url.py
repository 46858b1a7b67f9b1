"""Stream URLs: `[scheme://]nodes/[key,key]`, and streamer URIs: the same without the keys.

The scheme ends at the first `://`. A stream URL is cut at its last `/`: nodes left, keys right;
empty nodes with a scheme are the node `.`. Redis nodes may carry credentials and a `/db` segment.
File paths are percent-decoded and never split on a comma. A query (`?group=..&mode=..&reset=..`)
is cut off first; other names are errors. `?config=FILE` names a file with Kafka's settings for TLS
and the login; a kafka URL takes no user and no password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode

from ottla.redaction import HIDDEN, redact
from ottla.streams.errors import (
    InvalidStreamKey,
    NoEndingSlash,
    NotOneStreamKey,
    ProtocolRequired,
    UrlError,
)
from ottla.streams.types import INTERNAL, MAX_KEY_LENGTH, WILDCARD

QUERY_NAMES = ("group", "mode", "reset", "config")

_KEY = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_KEY_LENGTH}}}")
_RESERVED = frozenset((INTERNAL, WILDCARD))
_REDIS = ("redis", "rediss")


def validate_key(key: str, *, wildcard: bool = False) -> str:
    """Return the key or raise `InvalidStreamKey`; the wildcard is valid only on request."""
    if wildcard and key == WILDCARD:
        return key
    if not isinstance(key, str):
        raise InvalidStreamKey(f"a stream key is text, not {type(key).__name__}")
    if _KEY.fullmatch(key) is None or key in _RESERVED:
        raise InvalidStreamKey(
            f"{key!r} is not a stream key: use 1 to {MAX_KEY_LENGTH} of A-Z a-z 0-9 . _ - "
            "and no reserved name"
        )
    return key


@dataclass(frozen=True, slots=True)
class StreamUrl:
    """A parsed URL. `repr` masks the password, `str` keeps it and parses back to an equal value."""

    scheme: str | None
    nodes: tuple[str, ...]
    keys: tuple[str, ...] | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int | None = None
    query: tuple[tuple[str, str], ...] = ()

    @property
    def stream(self) -> str:
        """The only key."""
        if self.keys is None or len(self.keys) != 1:
            raise NotOneStreamKey(f"{self.masked} has {len(self.keys or ())} stream keys, not one")
        return self.keys[0]

    @property
    def path(self) -> str:
        """The path of a file URL."""
        return self.nodes[0]

    def __str__(self) -> str:
        return self._text(self.password)

    @property
    def masked(self) -> str:
        """The URL for messages, without the password."""
        return self._text(HIDDEN if self.password is not None else None)

    def __repr__(self) -> str:
        return f"StreamUrl({self.masked!r})"

    def _text(self, password: str | None) -> str:
        nodes = ",".join(self.nodes)
        if self.scheme == "file":
            nodes = quote(nodes, safe="/.-_~,")
        elif self.scheme == "stdio" and nodes == ".":
            nodes = ""
        if self.username is not None or password is not None:
            secret = "" if password is None else ":" + quote(password, safe="*")
            nodes = f"{quote(self.username or '', safe='')}{secret}@{nodes}"
        text = ("" if self.scheme is None else f"{self.scheme}://") + nodes
        if self.db is not None:
            text += f"/{self.db}"
        if self.keys is not None:
            text += "/" + ",".join(self.keys)
        return text + ("?" + urlencode(self.query) if self.query else "")


def parse_stream_url(url: str) -> StreamUrl:
    """A URL with keys (perhaps none) after its last slash."""
    rest, query = _cut_query(url)
    scheme, rest = _cut_scheme(rest)
    nodes, slash, keys = rest.rpartition("/")
    if not slash:
        raise NoEndingSlash(f"{redact(url)} has no / before its stream keys; end it with a slash")
    return _build(scheme, nodes, tuple(validate_key(k) for k in keys.split(",") if k), query)


def parse_streamer_uri(uri: str) -> StreamUrl:
    """A URI that names a store and no streams."""
    rest, query = _cut_query(uri)
    scheme, nodes = _cut_scheme(rest)
    return _build(scheme, nodes, None, query)


def parse(url: str) -> StreamUrl:
    """Either form, as `connect` takes them.

    A file URI cannot be told from a stream URL by its slashes: it names streams when it ends with
    a slash or when what comes before the last slash ends in `.ss`.
    """
    scheme, rest = _cut_scheme(_cut_query(url)[0])
    left, slash, right = rest.rpartition("/")
    if scheme == "file":
        with_keys = bool(slash) and (not right or left.endswith(".ss"))
    else:
        with_keys = bool(slash)
    return parse_stream_url(url) if with_keys else parse_streamer_uri(url)


def _cut_query(url: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    rest, _, text = url.partition("?")
    query = tuple(parse_qsl(text, keep_blank_values=True))
    for name, _ in query:
        if "@" in name:
            raise UrlError("a ? in the password of a URL is written %3F")
        if name not in QUERY_NAMES:
            raise UrlError(f"unknown name {name!r} in a URL's query; known: {QUERY_NAMES}")
    names = [name for name, _ in query]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UrlError(f"{twice!r} is twice in a URL's query; say it once")
    return rest, query


def _cut_scheme(url: str) -> tuple[str | None, str]:
    scheme, mark, rest = url.partition("://")
    return (scheme, rest) if mark else (None, url)


def _build(
    scheme: str | None,
    nodes: str,
    keys: tuple[str, ...] | None,
    query: tuple[tuple[str, str], ...],
) -> StreamUrl:
    if not nodes:
        if scheme is None:
            raise ProtocolRequired("a URL without nodes needs a scheme, such as stdio://")
        if scheme in ("kafka", *_REDIS):
            raise UrlError(f"{scheme}:/// names no server; write {scheme}://HOST:PORT/STREAM")
        nodes = "."
    if scheme == "file":
        return StreamUrl(scheme, (unquote(nodes),), keys, query=query)
    username = password = None
    db = None
    if scheme in _REDIS:
        nodes, username, password, db = _redis_parts(nodes)
    elif "@" in nodes:
        raise UrlError(
            "only redis:// takes a user and a password in its URL; for Kafka give "
            "connect(url, security=ottla.Security(...)), or name a file of settings by ?config=FILE"
        )
    split = tuple(node for node in nodes.split(",") if node)
    if not split:
        raise UrlError("a URL needs at least one node")
    return StreamUrl(scheme, split, keys, username, password, db, query)


def _redis_parts(nodes: str) -> tuple[str, str | None, str | None, int | None]:
    nodes, slash, segment = nodes.partition("/")
    if "@" in segment:
        raise UrlError("a / in the password of a URL is written %2F")
    if slash and not segment.isdecimal():
        raise UrlError(f"{segment!r} is not a Redis database number")
    credentials, at, hosts = nodes.rpartition("@")
    username = password = None
    if at:
        name, colon, secret = credentials.partition(":")
        username = unquote(name) or None
        password = unquote(secret) if colon else None
    return hosts, username, password, int(segment) if slash else None
