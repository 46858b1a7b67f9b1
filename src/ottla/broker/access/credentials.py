"""The credentials that clients of a listener are checked against.

- One credential serves all mechanisms: PLAIN checks a password against the user's SCRAM credential.
- Passwords of PLAIN users in a listener's `sasl.jaas.config` are turned into credentials at start,
  and the text is forgotten.
- SCRAM has an answer for every name. For one that does not exist it is made up, always the same for
  a name, and it looks like most of the others (`fake_credential`). PLAIN needs none: the time of
  its answer tells nothing (`refusals`).
- The broker's own users (`__node`, `__table`) are known on the listener of nodes alone. Elsewhere
  they are users that do not exist.
"""

from __future__ import annotations

import secrets
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.security.scram import (
    DEFAULT_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    SALT_BYTES,
    SHA_512,
    ScramCredential,
    fake_credential,
    make_credential,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.metadata.image import MetadataImage
    from ottla.metadata.security.users import ScramCredential as StoredCredential
    from ottla.security.scram import ScramMechanism

NODE_USER: Final = "__node"
TABLE_USER: Final = "__table"
RESERVED_PREFIX: Final = "__"
# To find what most credentials look like, so many are enough, and take a millisecond.
SAMPLED_USERS: Final = 1_000

Made = dict[str, dict[str, ScramCredential]]


def made_credentials(passwords: Mapping[str, str]) -> Made:
    """Credentials of passwords that are known here, for all mechanisms. Slow: milliseconds each."""
    return {
        name: {
            mechanism.name: make_credential(
                mechanism, password, secrets.token_bytes(SALT_BYTES), MIN_ITERATIONS
            )
            for mechanism in MECHANISMS.values()
        }
        for name, password in passwords.items()
    }


class Credentials:
    """Those of the cluster's users, as they are in the image at the moment."""

    def __init__(self, image: Callable[[], MetadataImage], secret: bytes, own: Made) -> None:
        """`secret` makes up credentials; `own` has those of the broker's own users."""
        self._image = image
        self._secret = secret
        self._own = own
        self._sampled: object = None
        self._usual: dict[str, tuple[int, int]] = {}

    def scram(self, mechanism: ScramMechanism, name: str, *, among_nodes: bool) -> ScramCredential:
        """The user's credential for a mechanism, or one that is made up."""
        if name.startswith(RESERVED_PREFIX):
            own = self._own.get(name, {}).get(mechanism.name) if among_nodes else None
            return own or self._made_up(mechanism, name)
        stored = self._image().scram.get(name, {}).get(mechanism.name)
        if stored is None:
            return self._made_up(mechanism, name)
        return _credential(mechanism, stored)

    def plain(
        self, name: str, *, among_nodes: bool, configured: Mapping[str, ScramCredential]
    ) -> ScramCredential | None:
        """The credential that a password is checked against; `configured` are a listener's own.

        None for a user that does not exist.
        """
        if name.startswith(RESERVED_PREFIX):
            return self._own.get(name, {}).get(SHA_512.name) if among_nodes else None
        known = configured.get(name)
        if known is not None:
            return known
        of_user = self._image().scram.get(name)
        if not of_user:
            return None
        mechanism = MECHANISMS[max(of_user)]
        return _credential(mechanism, of_user[mechanism.name])

    def is_own(self, name: str) -> bool:
        """Whether it is one of the broker's own users."""
        return name in self._own

    def _made_up(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        self._sample()
        salt_bytes, iterations = self._usual[mechanism.name]
        return fake_credential(self._secret, mechanism, name, salt_bytes, iterations)

    def _sample(self) -> None:
        """Look what most credentials are like, if users have changed since."""
        users = self._image().scram
        if users is not self._sampled:
            self._sampled = users
            self._usual = {one: _usual(users, one) for one in MECHANISMS}


def _credential(mechanism: ScramMechanism, stored: StoredCredential) -> ScramCredential:
    return ScramCredential(
        mechanism, stored.salt, stored.iterations, stored.stored_key, stored.server_key
    )


def _usual(users: Mapping[str, Mapping[str, StoredCredential]], mechanism: str) -> tuple[int, int]:
    """The commonest length of a salt and number of iterations."""
    found: Counter[tuple[int, int]] = Counter()
    for mechanisms in islice(users.values(), SAMPLED_USERS):
        credential = mechanisms.get(mechanism)
        if credential is not None:
            found[len(credential.salt), credential.iterations] += 1
    return found.most_common(1)[0][0] if found else (SALT_BYTES, DEFAULT_ITERATIONS)
