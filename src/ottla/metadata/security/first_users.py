"""Users in a file, for a cluster that has none: `ottla.bootstrap.user.file`.

One line for each credential: `name:mechanism:iterations:salt:stored key:server key`, the last three
in base64. It verifies a password and does not contain it. Empty lines and those that begin with `#`
do not count.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

from ottla.metadata.changes.security import SetScramCredential
from ottla.metadata.errors import InvalidConfig, UnacceptableCredential
from ottla.metadata.security.users import (
    KEY_BYTES,
    ScramCredential,
    check_credential,
    check_user_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY: Final = "ottla.bootstrap.user.file"
MAX_FILE_BYTES: Final = 1024 * 1024  # some thousand users


def user_line(user: str, mechanism: str, credential: ScramCredential) -> str:
    """What `parse_users` reads."""
    keys = (credential.salt, credential.stored_key, credential.server_key)
    shown = ":".join(base64.b64encode(one).decode("ascii") for one in keys)
    return f"{user}:{mechanism}:{credential.iterations}:{shown}"


def read_users(path: str) -> Iterator[SetScramCredential]:
    """The changes that make the users of a file. Blocks."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise InvalidConfig("a file that can be read", f"{path}: {error.strerror}", KEY) from error
    except UnicodeDecodeError as error:
        raise InvalidConfig("UTF-8 text", error.reason, KEY) from error
    if len(content) > MAX_FILE_BYTES:
        raise InvalidConfig(f"at most {MAX_FILE_BYTES} bytes", "more", KEY)
    return parse_users(text)


def parse_users(text: str) -> Iterator[SetScramCredential]:
    """The changes that make the users; `InvalidConfig` names the line."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            yield _parsed(line.strip())
        except (ValueError, binascii.Error) as error:
            raise InvalidConfig(
                "lines like name:SCRAM-SHA-512:8192:salt:stored key:server key, which "
                "`ottla user hash` makes",
                _reason(error),
                f"{KEY}, line {number}",
            ) from None


def _parsed(line: str) -> SetScramCredential:
    user, mechanism, iterations, *encoded = line.rsplit(":", 5)
    salt, stored_key, server_key = (base64.b64decode(one, validate=True) for one in encoded)
    if mechanism not in KEY_BYTES:
        raise ValueError("an unknown mechanism")
    check_user_name(user)
    # The stored key is as long as the salted password was.
    check_credential(mechanism, salt, int(iterations), stored_key)
    if len(server_key) != KEY_BYTES[mechanism]:
        raise ValueError("a server key of another length")
    credential = ScramCredential(salt, int(iterations), stored_key, server_key)
    return SetScramCredential(user, mechanism, credential)


def _reason(error: Exception) -> str:
    """Without the line, which is nobody's business."""
    return str(error) if isinstance(error, UnacceptableCredential) else "another one"
