"""Tokens of OAUTHBEARER: JSON Web Tokens, checked against a set of public keys.

    alg             RS, PS and ES 256/384/512 and EdDSA; `none` and HS never. The key decides which
                    of them may be, and the token's header must agree
    kid             names a key of the set; without it the set must have one key alone
    jku x5u jwk x5c never looked at; `crit` is refused
    exp             required; nbf and iat if they are there; clocks may differ by the skew
    iss, aud        must be the configured ones; without these settings the broker does not start
    sub             the user, mapped by rules; scopes that are required must be in the scope claim
    size            32 KiB for a token, 64 KiB and 16 levels for its claims

Keys come from `https://` or `file://` and nowhere else; `http://` only from this machine and if
insecure listeners are allowed. A key that is not known causes one fetch, and no other before a
pause that doubles while it stays unknown: a flood of bad tokens is no flood of requests. A fetch
that fails keeps the keys there are. Errors never quote what was fetched (CVE-2025-27817).

`TokenJudge` has no I/O: what must be fetched comes out as `Unfetched`, and time comes in.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from ottla.client.https import MAX_BYTES, FetchFailed, fetch
from ottla.client.security import is_loopback
from ottla.metadata.errors import InvalidConfig
from ottla.security.oauthbearer import (
    MAX_TOKEN_CHARACTERS,
    BadToken,
    GoodToken,
    Unfetched,
    Verdict,
)
from ottla.security.principal import MappingRules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clock import Clock
    from ottla.metadata.config.broker import ListenerConfig

FETCH_SECONDS: Final = 5.0
ABANDONED_SECONDS: Final = 2 * FETCH_SECONDS
"""After this time another fetch may begin although nobody has told how the last one ended."""
MAX_KEYS: Final = 100
MAX_CLAIMS_BYTES: Final = 64 * 1024
MAX_DEPTH: Final = 16

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {
    "P-256": frozenset({"ES256"}),
    "P-384": frozenset({"ES384"}),
    "P-521": frozenset({"ES512"}),
    "Ed25519": frozenset({"EdDSA"}),
    "Ed448": frozenset({"EdDSA"}),
}
_KEY: Final = "sasl.oauthbearer."
_URL: Final = _KEY + "jwks.endpoint.url"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """What a listener asks of tokens. Times are in seconds."""

    url: str
    issuer: str
    audiences: frozenset[str]
    rules: MappingRules
    skew: float = 30.0
    refresh: float = 3600.0
    backoff: float = 0.1
    backoff_max: float = 10.0
    scope_claim: str = "scope"
    sub_claim: str = "sub"
    required_scopes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: ListenerConfig) -> OAuthSettings:
        """`InvalidConfig` if a check of tokens would be missing (CVE-2026-33557)."""

        def needed(name: str) -> str:
            value = config.parsed(_KEY + name)
            if not value:
                raise InvalidConfig(
                    "a value, since OAUTHBEARER is enabled", "none", config.where(_KEY + name)
                )
            return ",".join(value) if isinstance(value, list | tuple) else str(value)

        rules_key = "ottla.sasl.oauthbearer.principal.mapping.rules"
        scopes = config.parsed("ottla.sasl.oauthbearer.required.scope")
        audiences = needed("expected.audience")
        url = needed("jwks.endpoint.url")
        _check_url(url, config)
        return cls(
            url,
            needed("expected.issuer"),
            frozenset(one.strip() for one in audiences.split(",") if one.strip()),
            MappingRules.parse(str(config.parsed(rules_key)), config.where(rules_key)),
            config.get_int(_KEY + "clock.skew.seconds"),
            config.get_int(_KEY + "jwks.endpoint.refresh.ms") / 1000,
            config.get_int(_KEY + "jwks.endpoint.retry.backoff.ms") / 1000,
            config.get_int(_KEY + "jwks.endpoint.retry.backoff.max.ms") / 1000,
            str(config.parsed(_KEY + "scope.claim.name")),
            str(config.parsed(_KEY + "sub.claim.name")),
            frozenset(scopes) if isinstance(scopes, list | tuple) else frozenset(),
        )


def _check_url(url: str, config: ListenerConfig) -> None:
    parts = urlsplit(url)
    insecure = config.broker.get_bool("ottla.allow.insecure.listeners")
    if parts.scheme == "https" and parts.hostname and not parts.username:
        return
    if parts.scheme == "file" and parts.path and not parts.netloc:
        return
    if parts.scheme == "http" and insecure and is_loopback(parts.hostname or ""):
        return
    # Without the URL, which may have a password in it.
    raise InvalidConfig("an https:// or file:// URL", "another one", config.where(_URL))


def fetch_keys(url: str) -> bytes:
    """The key set; blocks. `FetchFailed` without a word of what was there."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return fetch(url, seconds=FETCH_SECONDS, allow_http=is_loopback(parts.hostname or ""))
    try:
        with Path(unquote(parts.path)).open("rb") as stream:
            found = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise FetchFailed(str(error.strerror)) from None
    if len(found) > MAX_BYTES:
        raise FetchFailed(f"it has more than {MAX_BYTES} bytes")
    return found


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, and the algorithms that it may be used with."""

    key: Any
    algorithms: frozenset[str]


def parse_keys(document: bytes) -> dict[str | None, SigningKey]:
    """The usable keys of a set by their ids; `FetchFailed` if it is none."""
    import jwt

    try:
        listed = json.loads(document)["keys"]
        entries = [one for one in listed if isinstance(one, dict)][:MAX_KEYS]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FetchFailed("it is not a JSON Web Key Set") from None
    found: dict[str | None, SigningKey] = {}
    for entry in entries:
        algorithms = _algorithms_of(entry)
        kid = entry.get("kid")
        if not algorithms or entry.get("use", "sig") != "sig" or not isinstance(kid, str | None):
            continue
        try:
            key = jwt.PyJWK(entry, algorithm=min(algorithms)).key
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        found[kid] = SigningKey(key, algorithms)
    if not found:
        raise FetchFailed("it has no key that can be used")
    return found


def _algorithms_of(entry: Mapping[str, object]) -> frozenset[str]:
    """By the key's own type; a key may restrict itself further."""
    kind = entry.get("kty")
    if kind == "RSA":
        allowed = _RSA
    elif kind in ("EC", "OKP"):
        allowed = _CURVES.get(str(entry.get("crv")), frozenset())
    else:
        return frozenset()  # of `oct` keys above all: HS256 with a public key is a forgery
    stated = entry.get("alg")
    return allowed if stated is None else allowed & {str(stated)}


class TokenJudge:
    """Says what a token is worth.

    Tokens have wall time. Keys are fetched by monotonic time: after a wall clock that was ahead is
    set right they would be refreshed by nobody.
    """

    def __init__(
        self,
        settings: OAuthSettings,
        clock: Clock,
        fetching: Callable[[str], bytes] = fetch_keys,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._fetching = fetching
        self._keys: dict[str | None, SigningKey] = {}
        self._fetched_at = -float("inf")
        self._not_before = -float("inf")
        self._pause = settings.backoff
        self._fetched_by = -float("inf")  # when a fetch that was begun is over, heard of or not

    def load(self) -> None:
        """Fetch the keys now, at start; blocks. A file that cannot be used is an error."""
        try:
            self._keep(self._fetched())
        except FetchFailed as failure:
            if self._settings.url.startswith("file:"):
                raise InvalidConfig("a JSON Web Key Set", failure, _URL) from None
            logger.warning("no keys for OAUTHBEARER yet: %s: %s", _URL, failure)

    def judge(self, token: str) -> Verdict:
        """A verdict, or `Unfetched` if the keys must be fetched first."""
        if len(token) > MAX_TOKEN_CHARACTERS:
            return BadToken(f"token longer than {MAX_TOKEN_CHARACTERS} characters")
        header = _header(token)
        if isinstance(header, BadToken):
            return header
        now = self._clock.monotonic()
        key = self._key(header.get("kid"))
        stale = now - self._fetched_at > self._settings.refresh
        if (key is None or stale) and now >= self._not_before and now >= self._fetched_by:
            # Whoever asks may be gone before the keys are there, and never tell.
            self._fetched_by = now + ABANDONED_SECONDS
            return Unfetched(self._fetched_or_why, lambda found: self._heard(found, token, header))
        return self._verdict(token, header, key)

    def _fetched(self) -> dict[str | None, SigningKey]:
        return parse_keys(self._fetching(self._settings.url))

    def _fetched_or_why(self) -> dict[str | None, SigningKey] | FetchFailed:
        try:
            return self._fetched()
        except FetchFailed as failure:
            return failure

    def _heard(self, found: Any, token: str, header: Mapping[str, Any]) -> GoodToken | BadToken:
        """Back from a fetch."""
        self._fetched_by = -float("inf")
        if isinstance(found, FetchFailed):
            logger.error("keys for OAUTHBEARER: %s: %s; the old ones stay", _URL, found)
        else:
            self._keep(found)
        key = self._key(header.get("kid"))
        if key is None or isinstance(found, FetchFailed):
            self._not_before = self._clock.monotonic() + self._pause
            self._pause = min(2 * self._pause, self._settings.backoff_max)
        else:
            self._pause = self._settings.backoff
        return self._verdict(token, header, key)

    def _keep(self, keys: dict[str | None, SigningKey]) -> None:
        self._keys = keys
        self._fetched_at = self._clock.monotonic()

    def _key(self, kid: object) -> SigningKey | None:
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid) if isinstance(kid, str) else None

    def _verdict(
        self, token: str, header: Mapping[str, Any], key: SigningKey | None
    ) -> GoodToken | BadToken:
        import jwt

        if key is None:
            return BadToken("no key of the set has the token's kid")
        algorithm = header.get("alg")
        if algorithm not in key.algorithms:
            return BadToken("the token's alg does not fit its key")
        try:
            body: bytes = jwt.api_jws.decode(token, key.key, algorithms=[str(algorithm)])
        except (jwt.PyJWTError, ValueError, TypeError):
            return BadToken("the signature does not fit")
        if len(body) > MAX_CLAIMS_BYTES:
            return BadToken(f"claims of more than {MAX_CLAIMS_BYTES} bytes")
        try:
            claims = json.loads(body)
        except (ValueError, RecursionError):
            return BadToken("the claims are not JSON")
        if not isinstance(claims, dict) or _depth_exceeds(claims, MAX_DEPTH):
            return BadToken("the claims are not an object, or nested too deep")
        return self._claimed(claims)

    def _claimed(self, claims: Mapping[str, Any]) -> GoodToken | BadToken:
        settings, now = self._settings, self._clock.wall_ms() / 1000
        expires = _seconds(claims.get("exp"))
        if expires is None:
            return BadToken("no exp")
        if expires + settings.skew <= now:
            return BadToken("expired")
        for name in ("nbf", "iat"):
            if name in claims:
                since = _seconds(claims[name])
                if since is None or since - settings.skew > now:
                    return BadToken(f"{name} is in the future")
        if claims.get("iss") != settings.issuer:
            return BadToken("another issuer")
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(one, str) and one in settings.audiences for one in named):
            return BadToken("another audience")
        missing = sorted(settings.required_scopes - _scopes(claims.get(settings.scope_claim)))
        if missing:
            return BadToken("a scope is missing", "insufficient_scope", " ".join(missing))
        subject = claims.get(settings.sub_claim)
        user = settings.rules.apply(subject) if isinstance(subject, str) and subject else None
        if user is None:
            return BadToken("no user in the token, or no mapping rule for it")
        return GoodToken(user, expires)


def _header(token: str) -> Mapping[str, Any] | BadToken:
    import jwt

    try:
        header: dict[str, Any] = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return BadToken("not a token")
    if "crit" in header:
        return BadToken("the header has crit")
    return header


def _seconds(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e15 else None  # type: ignore[arg-type]


def _scopes(value: object) -> set[str]:
    if isinstance(value, str):
        return set(value.split())
    return {one for one in value if isinstance(one, str)} if isinstance(value, list) else set()


def _depth_exceeds(value: object, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    if depth == 0:
        return True
    inner = value.values() if isinstance(value, dict) else value
    return any(_depth_exceeds(one, depth - 1) for one in inner)
