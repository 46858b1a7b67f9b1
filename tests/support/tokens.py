"""Keys that sign tokens, and tokens: good ones and forged ones."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://idp.example"
AUDIENCE = "kafka"


@dataclass(frozen=True)
class Signer:
    """A private key with an id."""

    kid: str
    algorithm: str
    key: Any = field(repr=False)

    @property
    def public(self) -> dict[str, Any]:
        """The key as an entry of a set."""
        kinds = {"RS": RSAAlgorithm, "PS": RSAAlgorithm, "ES": ECAlgorithm, "Ed": OKPAlgorithm}
        found: dict[str, Any] = json.loads(
            kinds[self.algorithm[:2]].to_jwk(self.key.public_key())  # type: ignore[attr-defined]
        )
        return found | {"kid": self.kid}

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        return jwt.encode(
            claims, self.key, algorithm=self.algorithm, headers={"kid": self.kid} | header
        )


@cache
def signer(algorithm: str = "RS256", kid: str = "one") -> Signer:
    key: Any
    match algorithm[:2]:
        case "RS" | "PS":
            key = rsa.generate_private_key(65537, 2048)
        case "ES":
            curves: dict[str, Any] = {
                "ES256": ec.SECP256R1,
                "ES384": ec.SECP384R1,
                "ES512": ec.SECP521R1,
            }
            key = ec.generate_private_key(curves[algorithm]())
        case _:
            key = ed25519.Ed25519PrivateKey.generate()
    return Signer(kid, algorithm, key)


def key_set(*signers: Signer) -> bytes:
    return json.dumps({"keys": [one.public for one in signers]}).encode()


def claims(now: float, **more: Any) -> dict[str, Any]:
    return {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 300} | more


def forged(header: dict[str, Any], body: dict[str, Any], signature: bytes = b"") -> str:
    """A token with any header."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    return ".".join(
        (part(json.dumps(header).encode()), part(json.dumps(body).encode()), part(signature))
    )
