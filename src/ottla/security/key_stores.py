"""Keys, chains and trusted certificates from PEM and PKCS12, as PEM that OpenSSL takes.

- PEM needs no package. One file, or one text, has the key and the chain, the leaf first; texts from
  a properties file may have blanks in place of line breaks.
- PKCS12 is read with cryptography.
- A Java key store (JKS) is refused with the command that converts it. A type of JKS is no more than
  a default in Kafka's files, and Java reads PKCS12 under that name, too: what the file is decides.

Everything is read once, into memory: what is checked is what is used. OpenSSL takes keys from files
only, so they go there through a file that has no name (`nameless_file`).
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.security.errors import BadSecuritySetting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

MAX_STORE_BYTES: Final = 4 * 1024 * 1024
"""Of one file; all certificates that browsers trust are 250 KiB."""
JAVA_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
DER_SEQUENCE: Final = b"\x30"
PEM_BEGIN: Final = b"-----BEGIN "
BASE64_COLUMNS: Final = 64

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


class StoreType(Enum):
    PEM = "PEM"
    PKCS12 = "PKCS12"
    JKS = "JKS"


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its chain, the leaf first."""

    key: bytes = field(repr=False)
    chain: tuple[str, ...]
    password: str | None = field(default=None, repr=False)
    """Of the key, where it is encrypted."""


def read_store(key: str, path: Path) -> bytes:
    """The file that the setting `key` names."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_STORE_BYTES + 1)
    except OSError as error:
        raise BadSecuritySetting(key, f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_STORE_BYTES:
        raise BadSecuritySetting(key, f"{path} is larger than {MAX_STORE_BYTES} bytes")
    return data


def open_to_others(key: str, path: Path) -> bool:
    """Whether other users can read a key file; raises if they can write it."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise BadSecuritySetting(key, f"cannot read {path}: {error.strerror}") from error
    if mode & stat.S_IWOTH:
        raise BadSecuritySetting(key, f"every user may write {path}; chmod 600 {path}")
    return bool(mode & stat.S_IROTH)


def told_type(key: str, given: str | None) -> StoreType | None:
    """A `ssl.*store.type`, or None if the file decides."""
    if not given or given.upper() == "JKS":
        return None
    try:
        return StoreType(given.upper())
    except ValueError:
        raise BadSecuritySetting(key, f"{given!r} is neither PEM nor PKCS12") from None


def type_of(data: bytes) -> StoreType | None:
    """What a file is, by its content; None if it is no store."""
    if data.startswith(JAVA_MAGIC):
        return StoreType.JKS
    if data.startswith(DER_SEQUENCE):
        return StoreType.PKCS12
    return StoreType.PEM if PEM_BEGIN in data else None


def checked_type(key: str, path: Path, data: bytes, told: StoreType | None) -> StoreType:
    """The type of a store that can be read here."""
    found = type_of(data)
    if found is StoreType.JKS:
        name = str(path)
        raise BadSecuritySetting(
            key,
            f"Java key stores cannot be read here; convert: keytool -importkeystore -srckeystore "
            f"{name} -destkeystore {name}.p12 -deststoretype PKCS12",
        )
    if found is None:
        raise BadSecuritySetting(key, f"{path} is neither PEM nor PKCS12")
    if told is not None and told is not found:
        type_key = key.rpartition(".")[0] + ".type"
        raise BadSecuritySetting(key, f"{path} is {found.value}, but {type_key} is {told.value}")
    return found


# -- PEM ------------------------------------------------------------------------------------------


def pem_blocks(text: str) -> list[tuple[str, str]]:
    """(label, block) of every block, with its line breaks restored."""
    return [(found[1], _block(found[1], found[2])) for found in _BLOCK.finditer(text)]


def _block(label: str, body: str) -> str:
    lines = [line.strip() for line in body.strip().splitlines()]
    if len(lines) == 1:
        base64 = "".join(lines[0].split())
        lines = [base64[at : at + BASE64_COLUMNS] for at in range(0, len(base64), BASE64_COLUMNS)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def certificates_in(text: str) -> tuple[str, ...]:
    """The certificates of a PEM text, in order."""
    return tuple(block for label, block in pem_blocks(text) if label.endswith("CERTIFICATE"))


def keys_in(text: str) -> tuple[str, ...]:
    return tuple(block for label, block in pem_blocks(text) if label.endswith("PRIVATE KEY"))


def key_of_pem(
    keys: tuple[str, str], key_text: str, chain_text: str, password: str | None
) -> KeyMaterial:
    """Of texts; `keys` are the settings that they come from, for messages."""
    found, chain = keys_in(key_text), certificates_in(chain_text)
    if len(found) != 1:
        count = "no private key" if not found else f"{len(found)} private keys"
        raise BadSecuritySetting(keys[0], f"has {count}; it needs one in PEM (BEGIN PRIVATE KEY)")
    if not chain:
        raise BadSecuritySetting(keys[1], "has no certificate (BEGIN CERTIFICATE)")
    return KeyMaterial(found[0].encode(), chain, password)


def trusted_of_pem(key: str, text: str) -> tuple[str, ...]:
    found = certificates_in(text)
    if not found:
        raise BadSecuritySetting(key, "has no certificate (BEGIN CERTIFICATE)")
    return found


# -- PKCS12 ---------------------------------------------------------------------------------------


def key_of_pkcs12(key: str, data: bytes, password: str | None) -> KeyMaterial:
    from cryptography.hazmat.primitives import serialization

    store = _opened(key, data, password)
    if store.key is None or store.cert is None:
        raise BadSecuritySetting(key, "the PKCS12 file has no private key with its certificate")
    leaf = store.cert.certificate
    others = [extra.certificate for extra in store.additional_certs]
    chain = [leaf]
    # Stores have no order: each is followed by the one that issued it.
    while chain[-1].issuer != chain[-1].subject:
        issuer = chain[-1].issuer
        following = next((one for one in others if one.subject == issuer), None)
        if following is None or following in chain:
            break
        chain.append(following)
    encoded = serialization.Encoding.PEM
    return KeyMaterial(
        store.key.private_bytes(
            encoded, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        tuple(one.public_bytes(encoded).decode() for one in chain),
    )


def trusted_of_pkcs12(key: str, data: bytes, password: str | None) -> tuple[str, ...]:
    """All certificates of a store."""
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _opened(key, data, password)
    found = [] if store.cert is None else [store.cert.certificate]
    found += [extra.certificate for extra in store.additional_certs]
    if not found:
        raise BadSecuritySetting(key, "the PKCS12 file has no certificate")
    return tuple(one.public_bytes(Encoding.PEM).decode() for one in found)


def _opened(key: str, data: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        password_key = key.rpartition(".")[0] + ".password"
        raise BadSecuritySetting(
            key, f"the PKCS12 file cannot be opened; is {password_key} right?"
        ) from error


# -- for OpenSSL ----------------------------------------------------------------------------------


@contextmanager
def nameless_file(parts: Sequence[bytes]) -> Iterator[str]:
    """A path that only this process can open while the block runs; nothing reaches a disk."""
    data = b"".join(parts)
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("ottla-tls", os.MFD_CLOEXEC)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="ottla-tls-") as named:  # mode 0600
        named.write(data)
        named.flush()
        yield named.name
