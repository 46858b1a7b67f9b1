"""sasl_handshake, API key 17. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class SaslHandshakeRequest(NamedTuple):
    mechanism: str = ""


SASL_HANDSHAKE_REQUEST = Message(
    17,
    True,
    SaslHandshakeRequest,
    (0, 1),
    None,
    {
        SaslHandshakeRequest: (Field("mechanism", "string"),),
    },
)


class SaslHandshakeResponse(NamedTuple):
    error_code: int = 0
    mechanisms: Sequence[str] = ()


SASL_HANDSHAKE_RESPONSE = Message(
    17,
    False,
    SaslHandshakeResponse,
    (0, 1),
    None,
    {
        SaslHandshakeResponse: (
            Field("error_code", "int16"),
            Field("mechanisms", "string", array=True),
        ),
    },
)
