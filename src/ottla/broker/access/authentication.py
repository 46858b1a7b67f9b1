"""The SASL exchange of one connection, as a state machine without I/O; time comes in.

    state     ApiVersions         SaslHandshake            SaslAuthenticate         anything else
    NEW       3 are answered      enabled: EXCHANGE        34, FAILED               close
                                  else 33, FAILED
    EXCHANGE  34, FAILED          34, FAILED               challenge: same          close
                                                           success: DONE
                                                           failure: 58, FAILED
    DONE      answered            REAUTH, or 34            34                       answered
    expired   close               REAUTH                   close                    close
    REAUTH    34, FAILED          34, FAILED               as EXCHANGE              close
    FAILED    close               close                    close                    close

- `admit` decides by the header of a request alone, before anything of its body is read. Requests of
  the two SASL APIs that it admits go to `handshake` and `token`.
- SaslHandshake v0 is closed: it is followed by raw tokens, which have no error answers.
- A client may authenticate again if its session has a lifetime, and a second after the last time.
  It must use the same mechanism (that is told at its first token, as in Kafka) and come out as the
  same principal.
- A session ends after `connections.max.reauth.ms` or with the credential, whichever is first. Its
  end is looked at when a request comes; one that had to wait for its turn is not late.
- `token` may return `Work`: the caller runs it in a thread, and passes the result to `worked`.
  Meanwhile it must not call anything else here.
- A name that begins with `__` is the broker's own. It is refused, unless the mechanism has checked
  it against the node's own credential (`is_own`); a token or a configured password has not.
- What the client is told of a failure is one of three sentences. The reason is for the audit log.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.access.credentials import RESERVED_PREFIX
from ottla.security.steps import Challenge, Failure, Success, Work
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.security.steps import Mechanism, Step

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
MAX_API_VERSIONS: Final = 3  # clients ask once, or again in an older version
MAX_FRAMES: Final = 16  # before success; the longest exchange has six
MIN_REAUTH_SECONDS: Final = 1.0  # as in Kafka: nobody needs it more often

RESERVED_NAME: Final = "reserved name"
FAILED_TEXT: Final = "Authentication failed"
MECHANISM_TEXT: Final = "Mechanism changed"
PRINCIPAL_TEXT: Final = "Principal changed"


class State(Enum):
    NEW = "new"
    EXCHANGE = "exchange"
    DONE = "done"
    REAUTH = "reauth"
    FAILED = "failed"


class Admission(Enum):
    """What becomes of a request."""

    SERVE = "serve"
    ILLEGAL = "illegal"  # ApiVersions that is answered with 34; the session has failed
    CLOSE = "close"
    EXPIRED = "expired"  # close, because the session has ended


class Greeting(NamedTuple):
    """The answer to SaslHandshake."""

    error_code: ErrorCode
    mechanisms: Sequence[str]


class Reply(NamedTuple):
    """The answer to SaslAuthenticate."""

    error_code: ErrorCode
    message: str | None = None
    data: bytes = b""
    lifetime_ms: int = 0


class SaslSession:
    """One connection to a listener with SASL."""

    __slots__ = (
        "_api_versions",
        "_authenticated_at",
        "_begin",
        "_changed",
        "_expires_at",
        "_frames",
        "_is_own",
        "_lifetime_of",
        "_mechanism",
        "_mechanisms",
        "is_node",
        "mechanism_name",
        "principal",
        "reason",
        "state",
        "tried",
    )

    def __init__(
        self,
        mechanisms: Sequence[str],
        begin: Callable[[str], Mechanism],
        lifetime_of: Callable[[str], float | None],
        is_own: Callable[[str, str], bool] = lambda _mechanism, _name: False,
    ) -> None:
        """`begin` makes the mechanism of this name, `lifetime_of` has its limit in seconds.

        `is_own` says whether a mechanism checks a name against a credential of the broker's own.
        """
        self._mechanisms = mechanisms
        self._begin = begin
        self._lifetime_of = lifetime_of
        self._is_own = is_own
        self._frames = 0
        self._api_versions = 0
        self._mechanism: Mechanism | None = None
        self._changed = False  # to another mechanism than before
        self._authenticated_at = 0.0
        self._expires_at: float | None = None
        self.mechanism_name = ""
        self.principal: str | None = None  # of the last success
        self.is_node = False  # it has proven that by the node's own credential
        self.reason = ""  # of a failure, for the audit log
        self.tried = ""  # the user that failed, as far as it was told
        self.state = State.NEW

    @property
    def is_open(self) -> bool:
        """Whether requests of all APIs are served, if the session has not expired."""
        return self.state is State.DONE

    def has_expired(self, now: float) -> bool:
        return self._expires_at is not None and now >= self._expires_at

    def admit(self, api_key: int, version: int, now: float) -> Admission:
        """Whether a request may be looked at; `now` is when it came."""
        state = self.state
        if state is State.DONE:
            if not self.has_expired(now) or (api_key == SASL_HANDSHAKE and version == 1):
                return Admission.SERVE
            self._fail("session expired")
            return Admission.EXPIRED
        if state is State.FAILED:
            return Admission.CLOSE
        self._frames += 1
        if self._frames > MAX_FRAMES:
            return self._close("too many requests")
        if api_key == API_VERSIONS:
            if state is not State.NEW:
                self._fail("ApiVersions within an exchange")
                return Admission.ILLEGAL
            self._api_versions += 1
            if self._api_versions > MAX_API_VERSIONS:
                return self._close("too many ApiVersions requests")
            return Admission.SERVE
        if (api_key == SASL_HANDSHAKE and version == 1) or (
            api_key == SASL_AUTHENTICATE and 0 <= version <= 2
        ):
            return Admission.SERVE
        return self._close(f"API {api_key} version {version} before authentication")

    def handshake(self, mechanism: str, now: float) -> Greeting:
        """SaslHandshake was admitted."""
        match self.state:
            case State.NEW:
                pass
            case State.DONE:
                soon = now - self._authenticated_at < MIN_REAUTH_SECONDS
                if self._expires_at is None or (soon and not self.has_expired(now)):
                    return Greeting(ErrorCode.ILLEGAL_SASL_STATE, self._mechanisms)
                self._frames = 0
            case _:
                self._fail("SaslHandshake within an exchange")
                return Greeting(ErrorCode.ILLEGAL_SASL_STATE, self._mechanisms)
        if mechanism not in self._mechanisms:
            self._fail("mechanism is not enabled")
            return Greeting(ErrorCode.UNSUPPORTED_SASL_MECHANISM, self._mechanisms)
        again = self.state is State.DONE
        self._changed = again and mechanism != self.mechanism_name
        self.mechanism_name = mechanism
        self._mechanism = self._begin(mechanism)
        self.state = State.REAUTH if again else State.EXCHANGE
        return Greeting(ErrorCode.NONE, self._mechanisms)

    def token(self, data: bytes, now: float, wall: float) -> Reply | Work:
        """SaslAuthenticate was admitted; `wall` is in seconds since 1970."""
        match self.state:
            case State.EXCHANGE | State.REAUTH:
                assert self._mechanism is not None
                if self._changed:
                    return self._refuse(MECHANISM_TEXT, "mechanism changed")
                return self.worked(self._mechanism.step(data), now, wall)
            case State.DONE:
                return Reply(ErrorCode.ILLEGAL_SASL_STATE)
            case _:
                self._fail("SaslAuthenticate without a handshake")
                return Reply(ErrorCode.ILLEGAL_SASL_STATE)

    def worked(self, step: Step, now: float, wall: float) -> Reply | Work:
        """What the mechanism came to."""
        match step:
            case Challenge(data):
                return Reply(ErrorCode.NONE, None, data)
            case Work():
                return step
            case Failure(reason, user):
                self.tried = user
                return self._refuse(FAILED_TEXT, reason)
            case Success(name, data, expires_at):
                return self._succeed(name, data, expires_at, now, wall)

    def _succeed(
        self, name: str, data: bytes, expires_at: float | None, now: float, wall: float
    ) -> Reply:
        self.tried = name
        is_node = name.startswith(RESERVED_PREFIX)
        if is_node and not self._is_own(self.mechanism_name, name):
            return self._refuse(FAILED_TEXT, RESERVED_NAME)
        principal = f"User:{name}"
        if self.state is State.REAUTH and principal != self.principal:
            return self._refuse(PRINCIPAL_TEXT, f"principal changed to {principal}")
        limits = [] if expires_at is None else [expires_at - wall]
        most = self._lifetime_of(self.mechanism_name)
        if most is not None:
            limits.append(most)
        lifetime_ms = int(min(limits) * 1000) if limits else 0
        if limits and lifetime_ms <= 0:
            return self._refuse(FAILED_TEXT, "credential expired")
        self._expires_at = now + lifetime_ms / 1000 if limits else None
        self._authenticated_at = now
        self._mechanism = None
        self.principal = principal
        self.is_node = is_node
        self.state = State.DONE
        return Reply(ErrorCode.NONE, None, data, lifetime_ms)

    def end(self, reason: str) -> None:
        """Nothing more is served."""
        self._fail(reason)

    def _refuse(self, text: str, reason: str) -> Reply:
        self._fail(reason)
        return Reply(ErrorCode.SASL_AUTHENTICATION_FAILED, text)

    def _close(self, reason: str) -> Admission:
        self._fail(reason)
        return Admission.CLOSE

    def _fail(self, reason: str) -> None:
        self.reason = reason
        self._mechanism = None
        self.state = State.FAILED
