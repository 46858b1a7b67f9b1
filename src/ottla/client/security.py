"""How a connection is protected. One value carries all of it from the caller to the socket.

Only PLAINTEXT is supported for now. The client refuses everything else when it is created, so that
passwords and data are never sent over a less secure connection than requested.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.client.errors import UnsupportedSecurity

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class Security:
    """Kafka's own names for the protocol and the mechanism; secrets stay out of the repr."""

    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = None

    def refuse_unsupported(self) -> None:
        """Raise `UnsupportedSecurity` unless connections can be made as asked."""
        if self.security_protocol != "PLAINTEXT":
            raise UnsupportedSecurity(
                f"security_protocol {self.security_protocol} is not supported yet; "
                "use a PLAINTEXT listener of the broker"
            )
        if (
            self.sasl_mechanism is not None
            or self.sasl_username is not None
            or self.sasl_password is not None
            or self.ssl_context is not None
        ):
            raise UnsupportedSecurity(
                "security_protocol PLAINTEXT knows neither SASL nor TLS; leave their settings out"
            )


PLAINTEXT = Security()
