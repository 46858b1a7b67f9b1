"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): formulas, messages, server and client.

    first   client: gs2,n=user,r=cnonce[,ext]
            server checks size, channel binding, m=, escapes, nonce, a=, extensions, in this order
            server: r=cnonce+snonce,s=salt,i=n
    final   client: c=gs2,r=nonce,p=proof
            server checks that c is the header sent, that r is the whole nonce, and the proof
            server: v=signature

- The nonce of the final message must equal the one sent, whole (CVE-2024-56128).
- An unknown user gets a credential that was made up (`fake_credential`), always the same for a
  name. The exchange takes the same course and the same work, and its proof cannot fit.
- The client refuses a server that does not prove that it knows the credential (`v=`), one whose
  nonce does not begin with the client's, and iterations outside of its limits.
- Bytes are compared by `hmac.compare_digest` alone; a test refuses `==` on bytes in this room.
- Names and passwords are UTF-8 without SASLprep, as in Kafka and librdkafka.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ottla.security.steps import Challenge, Failure, Step, Success, Work, name_fault

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
"""Kafka's limits for a stored credential."""
DEFAULT_ITERATIONS: Final = 8192
MAX_CLIENT_ITERATIONS: Final = 1_000_000
"""Half a second of a client's processor; a false server could ask for hours of it."""
SALT_BYTES: Final = 24
"""As many as Ottla's and Kafka's own tools make."""
NONCE_BYTES: Final = 32
MAX_MESSAGE_BYTES: Final = 4096
"""Names have 255 characters and nonces 256; the rest is for extensions."""
MAX_NONCE_CHARACTERS: Final = 256


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """Kafka's name and number of a mechanism, and its hash."""

    name: str
    number: int
    hash_name: str
    hash_bytes: int


SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)
MECHANISMS: Final = {one.name: one for one in (SHA_256, SHA_512)}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a password. `is_known` is False for a made-up one."""

    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    is_known: bool = True

    def is_same(self, other: ScramCredential) -> bool:
        """Whether it is of the same password and salt."""
        return self.mechanism is other.mechanism and hmac.compare_digest(
            self.stored_key, other.stored_key
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a credential is not pickled")


# Formulas of RFC 5802, section 3.


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Hi(password, salt, i): slow on purpose."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of_salted(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential of a salted password, which is not kept."""
    stored_key = _hash(mechanism, _hmac(mechanism, salted, b"Client Key"))
    server_key = _hmac(mechanism, salted, b"Server Key")
    return ScramCredential(mechanism, salt, iterations, stored_key, server_key)


def make_credential(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS
) -> ScramCredential:
    """The credential of a password. The salt is `SALT_BYTES` random bytes."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of_salted(mechanism, salted, salt, iterations)


def fake_credential(
    secret: bytes, mechanism: ScramMechanism, name: str, salt_bytes: int, iterations: int
) -> ScramCredential:
    """A credential for a user that does not exist; nobody has a password for it.

    It is the same for a name at every try, so that its salt looks like a stored one.
    """

    def drawn(use: bytes) -> bytes:
        text = b"\0".join((use, mechanism.name.encode(), name.encode()))
        return hmac.digest(secret, text, "sha512")

    size = mechanism.hash_bytes
    return ScramCredential(
        mechanism,
        drawn(b"salt")[:salt_bytes],
        iterations,
        drawn(b"stored key")[:size],
        drawn(b"server key")[:size],
        is_known=False,
    )


def is_password(credential: ScramCredential, password: str) -> bool:
    """Whether the password belongs to the credential: as slow as making it."""
    salted = salted_password(credential.mechanism, password, credential.salt, credential.iterations)
    made = credential_of_salted(
        credential.mechanism, salted, credential.salt, credential.iterations
    )
    return hmac.compare_digest(made.stored_key, credential.stored_key) and credential.is_known


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, data).digest()


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.hash_name)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


# Messages.

_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]"
_EXTENSIONS: Final = r"(?P<extensions>(?:,[A-Za-z]+=[^,\x00]*)*)"
_BASE64: Final = r"[A-Za-z0-9+/]+={0,2}"
_GS2: Final = re.compile(r"(?P<binding>n|y|p=[^,]*),(?:a=(?P<authzid>[^,]*))?,")
_CLIENT_FIRST: Final = re.compile(
    rf"n=(?P<name>[^,]+),r=(?P<nonce>{_PRINTABLE}{{1,{MAX_NONCE_CHARACTERS}}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<header>{_BASE64}),r=(?P<nonce>{_PRINTABLE}+){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}+),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}})"
    rf"{_EXTENSIONS}"
)
_SERVER_FINAL: Final = re.compile(rf"v=(?P<signature>{_BASE64}){_EXTENSIONS}")
_ESCAPE: Final = re.compile(r"=(?!2C|3D)")
_TOKEN_LOGIN: Final = "tokenauth"


class _Broken(Exception):
    """A message that is refused; its text is the reason."""


def _text(token: bytes) -> str:
    if len(token) > MAX_MESSAGE_BYTES:
        raise _Broken(f"message longer than {MAX_MESSAGE_BYTES} bytes")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise _Broken("message is not UTF-8") from None


def _match(pattern: re.Pattern[str], text: str, what: str) -> re.Match[str]:
    if text.startswith("m="):
        raise _Broken("mandatory extension")
    found = pattern.fullmatch(text)
    if found is None:
        raise _Broken(f"malformed {what}")
    return found


def _bytes(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise _Broken(f"malformed {what}") from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _name(escaped: str) -> str:
    if _ESCAPE.search(escaped):
        raise _Broken("malformed user name")
    name = escaped.replace("=2C", ",").replace("=3D", "=")
    fault = name_fault(name)
    if fault is not None:
        raise _Broken(fault)
    return name


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


class ScramServer:
    """The server's side of one exchange.

    `credential_of` has an answer for every name (see `fake_credential`). `nonce` is the server's
    part: `NONCE_BYTES` random bytes in base64, fresh for each exchange.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential_of: Callable[[str], ScramCredential],
        nonce: str,
    ) -> None:
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._server_nonce = nonce
        self._credential: ScramCredential | None = None
        self._ended = False
        self._name = ""
        self._header = ""
        self._nonce = ""
        self._messages = ""

    def step(self, token: bytes) -> Step:
        """Challenge for the first message, Success or Failure for the final one."""
        if self._ended:
            return Failure("message after the end of the exchange")
        try:
            if self._credential is None:
                return self._first(_text(token))
            self._ended = True
            return self._final(_text(token), self._credential)
        except _Broken as broken:
            self._ended = True
            return Failure(str(broken), self._name)

    def _first(self, text: str) -> Challenge:
        header = _GS2.match(text)
        if header is None:
            raise _Broken("malformed first message")
        if header["binding"].startswith("p="):
            raise _Broken("channel binding is not supported")
        bare = text[header.end() :]
        found = _match(_CLIENT_FIRST, bare, "first message")
        self._name = _name(found["name"])
        authzid = header["authzid"]
        if authzid is not None and _name(authzid) != self._name:
            raise _Broken("authorization id differs from the user")
        if f",{_TOKEN_LOGIN}=true" in found["extensions"].lower():
            raise _Broken("delegation tokens are not supported")
        self._header = header[0]
        self._credential = credential = self._credential_of(self._name)
        assert credential.mechanism is self._mechanism
        self._nonce = found["nonce"] + self._server_nonce
        answer = f"r={self._nonce},s={_base64(credential.salt)},i={credential.iterations}"
        self._messages = f"{bare},{answer}"
        return Challenge(answer.encode())

    def _final(self, text: str, credential: ScramCredential) -> Step:
        found = _match(_CLIENT_FINAL, text, "final message")
        header = _bytes(found["header"], "channel binding")
        if not hmac.compare_digest(header, self._header.encode()):
            raise _Broken("channel binding differs from the first message")
        if not hmac.compare_digest(found["nonce"].encode(), self._nonce.encode()):
            raise _Broken("nonce differs from the one sent")
        proof = _bytes(found["proof"], "proof")
        if len(proof) != self._mechanism.hash_bytes:
            raise _Broken("malformed proof")
        signed = f"{self._messages},{found['bare']}".encode()
        client_key = _xor(proof, _hmac(self._mechanism, credential.stored_key, signed))
        fits = hmac.compare_digest(_hash(self._mechanism, client_key), credential.stored_key)
        signature = _hmac(self._mechanism, credential.server_key, signed)
        if not credential.is_known:
            raise _Broken("unknown user")
        if not fits:
            raise _Broken("wrong password")
        if not credential.is_same(self._credential_of(self._name)):
            raise _Broken("credential changed within the exchange")
        return Success(self._name, f"v={_base64(signature)}".encode())


class SaltedPasswords:
    """Salted passwords of one client, so that only its first login has to hash.

    A server has one salt for a user until the password changes: the newest few are enough.
    """

    LIMIT: Final = 8

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes, int], bytes] = {}

    def get(self, mechanism: ScramMechanism, salt: bytes, iterations: int) -> bytes | None:
        """The salted password if it was computed before."""
        return self._known.get((mechanism.name, salt, iterations))

    def keep(self, mechanism: ScramMechanism, salt: bytes, iterations: int, salted: bytes) -> None:
        """Remember a salted password."""
        if len(self._known) >= self.LIMIT:
            del self._known[next(iter(self._known))]
        self._known[mechanism.name, salt, iterations] = salted

    def __reduce__(self) -> NoReturn:
        raise TypeError("salted passwords are not pickled")


class ScramClient:
    """The client's side of one exchange: `first()` is sent, then each answer goes to `step`."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        name: str,
        password: str,
        nonce: str,
        salted: SaltedPasswords,
    ) -> None:
        self._mechanism = mechanism
        self._user = name
        self._password = password
        self._own_nonce = nonce
        self._salted = salted
        self._bare = f"n={_escaped(name)},r={nonce}"
        self._signature: bytes | None = None
        self._ended = False

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def step(self, token: bytes) -> Step:
        """The answer to a message of the server; Success once it has proven itself."""
        if self._ended:
            return Failure("message after the end of the exchange")
        try:
            text = _text(token)
            if self._signature is None:
                return self._answer(text)
            self._ended = True
            return self._verify(text, self._signature)
        except _Broken as broken:
            self._ended = True
            return Failure(str(broken))

    def _answer(self, text: str) -> Step:
        found = _match(_SERVER_FIRST, text, "first message of the server")
        own = self._own_nonce
        nonce = found["nonce"]
        if len(nonce) <= len(own) or not nonce.startswith(own):
            raise _Broken("the server's nonce does not extend ours")
        iterations = int(found["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_CLIENT_ITERATIONS:
            raise _Broken(
                f"the server asks for {iterations} iterations; allowed are {MIN_ITERATIONS} to "
                f"{MAX_CLIENT_ITERATIONS}"
            )
        salt = _bytes(found["salt"], "salt")

        def then(salted: bytes) -> Step:
            self._salted.keep(self._mechanism, salt, iterations, salted)
            return self._final(text, nonce, salted)

        known = self._salted.get(self._mechanism, salt, iterations)
        if known is not None:
            return self._final(text, nonce, known)
        mechanism, password = self._mechanism, self._password
        return Work(lambda: salted_password(mechanism, password, salt, iterations), then)

    def _final(self, server_first: str, nonce: str, salted: bytes) -> Challenge:
        mechanism = self._mechanism
        bare = f"c={_base64(b'n,,')},r={nonce}"
        signed = f"{self._bare},{server_first},{bare}".encode()
        client_key = _hmac(mechanism, salted, b"Client Key")
        proof = _xor(client_key, _hmac(mechanism, _hash(mechanism, client_key), signed))
        server_key = _hmac(mechanism, salted, b"Server Key")
        self._signature = _hmac(mechanism, server_key, signed)
        return Challenge(f"{bare},p={_base64(proof)}".encode())

    def _verify(self, text: str, signature: bytes) -> Success:
        if text.startswith("e="):
            raise _Broken(f"the server says {text[2:80]!r}")
        found = _match(_SERVER_FINAL, text, "final message of the server")
        said: Any = _bytes(found["signature"], "signature")
        if not hmac.compare_digest(said, signature):
            raise _Broken("the server does not know the password: it may be a false one")
        return Success(self._user)
