"""Users and their SCRAM credentials: values, and which are valid.

A user is a name with one credential for each mechanism. A credential verifies a password and does
not contain it; it is still no text for logs, so its keys are in no repr.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.metadata.errors import UnacceptableCredential

if TYPE_CHECKING:
    from collections.abc import Mapping

SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
MECHANISMS: Final[Mapping[int, str]] = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
"""By the numbers that APIs 50 and 51 use."""
KEY_BYTES: Final[Mapping[str, int]] = {SCRAM_SHA_256: 32, SCRAM_SHA_512: 64}
MIN_ITERATIONS: Final = 4_096  # RFC 5802
MAX_ITERATIONS: Final = 16_384  # Kafka's: a login must not cost the server more
MIN_SALT_BYTES: Final = 8
MAX_SALT_BYTES: Final = 255
MAX_NAME_LENGTH: Final = 255
MAX_USERS: Final = 100_000  # bounds what one administrator can make every node hold
RESERVED_PREFIX: Final = "__"
"""Names of the broker's own users begin so; no API makes them."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def check_user_name(name: str, *, own: bool = False) -> None:
    """Refuse a name that cannot be a user's; `own` allows those of the broker's users."""
    if not name or len(name) > MAX_NAME_LENGTH:
        raise UnacceptableCredential(
            f"a user name of 1 to {MAX_NAME_LENGTH} characters", f"{len(name)}", "user"
        )
    if not name.isprintable():
        raise UnacceptableCredential(
            "a user name without control characters", ascii(name[:100]), "user"
        )
    if name == "*" or not name.strip():
        # In ACLs User:* is everyone; nobody sees a name of spaces.
        raise UnacceptableCredential(
            "a user name other than * and with more than spaces", repr(name), "user"
        )
    if name.startswith(RESERVED_PREFIX) and not own:
        raise UnacceptableCredential(
            f"a user name that does not begin with {RESERVED_PREFIX}", repr(name), "user"
        )


def check_credential(mechanism: str, salt: bytes, iterations: int, salted_password: bytes) -> None:
    """Refuse what no client would log in with, or what is too weak."""
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise UnacceptableCredential(
            f"{MIN_ITERATIONS} to {MAX_ITERATIONS} iterations", iterations, mechanism
        )
    if not MIN_SALT_BYTES <= len(salt) <= MAX_SALT_BYTES:
        raise UnacceptableCredential(
            f"a salt of {MIN_SALT_BYTES} to {MAX_SALT_BYTES} bytes", f"{len(salt)}", mechanism
        )
    expected = KEY_BYTES[mechanism]
    if len(salted_password) != expected:
        raise UnacceptableCredential(
            f"a salted password of {expected} bytes", f"{len(salted_password)}", mechanism
        )
