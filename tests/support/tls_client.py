"""A raw client that speaks TLS."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from pathlib import Path


class RawTlsClient(RawClient):
    """One connection to a listener with TLS."""

    def __init__(
        self,
        bootstrap: str,
        ca: Path,
        *,
        certificate: tuple[Path, Path] | None = None,
        receive_bytes: int | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(bootstrap, source=source)
        if receive_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(*certificate)
        host = bootstrap.rpartition(":")[0]
        self.tls = context.wrap_socket(self._socket, server_hostname=host)
        self._socket = self.tls
