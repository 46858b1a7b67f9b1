"""Why there is no TLS connection, in words that name the setting to change.

OpenSSL tells a number. The names in a certificate that was made for another host are not in it, so
they are asked for with one more handshake, which no data follows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.client.cluster.wrong_protocol import speaks_without_tls
from ottla.client.errors import BrokerUnreachable, ClientError, TlsFailed
from ottla.security.contexts import client_context
from ottla.security.errors import SecurityError
from ottla.security.tls_channel import ENDED_EARLY, TlsFault

if TYPE_CHECKING:
    from ottla.client.cluster.connection import Address
    from ottla.client.cluster.protection import Protection

PROBE_TIMEOUT: Final = 2.0
SILENT: Final = TlsFault("NO_ANSWER_DURING_HANDSHAKE")

# X509_V_ERR_*
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_UNKNOWN_CA: Final = (2, 18, 19, 20, 21, 27)
_REVOKED: Final = 23
_OTHER_NAME: Final = (62, 64)

_NO_VERSION: Final = ("TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")
_NO_CIPHER: Final = ("SSLV3_ALERT_HANDSHAKE_FAILURE", "NO_SHARED_CIPHER")
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "BAD_RECORD_TYPE")


async def tls_failure(
    address: Address, fault: TlsFault | None, protection: Protection
) -> ClientError:
    """The error for a handshake that has failed."""
    why = f"no TLS connection to {address}: "
    if fault in (None, ENDED_EARLY, SILENT):
        if await speaks_without_tls(address.host, address.port):
            return TlsFailed(
                f"{why}the listener does not speak TLS; set security.protocol to "
                f"{'SASL_PLAINTEXT' if protection.security.has_sasl else 'PLAINTEXT'}, or give the "
                "port of another listener"
            )
        # It may be starting or stopping, so this is worth another try.
        did = "did not answer" if fault is SILENT else "closed the connection"
        return BrokerUnreachable(f"{why}the server {did} during the handshake")
    assert fault is not None
    if fault.verify_code in _OTHER_NAME:
        names = await _names_of(address, protection)
        shown = f" but for {', '.join(names)}" if names else ""
        return TlsFailed(
            f"{why}its certificate is not for {address.host}{shown}; connect to one of these "
            "names, or have a certificate made for this one"
        )
    if fault.verify_code or fault.reason in (*_NOT_TLS, *_NO_VERSION, *_NO_CIPHER):
        return TlsFailed(why + _sentence(fault))
    return refused_certificate(address, fault) or TlsFailed(f"{why}{fault}")


def refused_certificate(address: Address, fault: TlsFault) -> TlsFailed | None:
    """The error for an alert about the client's certificate, which TLS 1.3 sends late."""
    about = "CERTIFICATE" in fault.reason or "UNKNOWN_CA" in fault.reason
    if "_ALERT_" not in fault.reason or not about:
        return None
    return TlsFailed(
        f"no TLS connection to {address}: the broker refused the client's certificate "
        f"({fault.reason}); set ssl.keystore.location to one of a CA that it trusts"
    )


def _sentence(fault: TlsFault) -> str:
    code = fault.verify_code
    if code in _UNKNOWN_CA:
        return (
            f"its certificate is not of a CA that is trusted ({fault.detail}); set "
            "ssl.truststore.location (ssl_ca) to the CA's certificate"
        )
    if code == _EXPIRED:
        return "its certificate has expired; it must be renewed on the broker"
    if code == _NOT_YET_VALID:
        return "its certificate is not valid yet; compare the clocks of both machines"
    if code == _REVOKED:
        return "its certificate is revoked"
    if code:
        return f"its certificate is refused: {fault.detail}"
    if fault.reason in _NO_VERSION:
        return (
            f"no version of TLS that both sides offer ({fault.reason}); see ssl.enabled.protocols "
            "here and on the broker"
        )
    if fault.reason in _NO_CIPHER:
        return (
            f"nothing that both sides offer ({fault.reason}); see ssl.cipher.suites here and on "
            "the broker, and whether it asks for a client certificate (ssl.keystore.location)"
        )
    return "the server there does not speak TLS; give the port of a TLS listener"


async def _names_of(address: Address, protection: Protection) -> list[str]:
    """The names in the certificate of a server that is trusted but has another name."""
    from ottla.client.cluster.protection import tls_settings

    if protection.security.ssl_context is not None:
        return []
    try:
        context = await asyncio.to_thread(
            client_context, tls_settings(protection.security), check_hostname=False
        )
        async with asyncio.timeout(PROBE_TIMEOUT):
            _, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname=address.host
            )
            shown = writer.get_extra_info("peercert") or {}
            writer.transport.abort()
    except (OSError, TimeoutError, SecurityError):
        return []
    return [str(name)[:100] for _, name in shown.get("subjectAltName", ())][:10]
