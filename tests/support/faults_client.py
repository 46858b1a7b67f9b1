"""The plainest client there is: one blocking socket, one request at a time, no retries."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any, Final

from ottla.wire.messages import read_response, request_parts
from tests.support.faults_broker import PATIENCE_SECONDS

if TYPE_CHECKING:
    from types import TracebackType

_SIZE: Final = struct.Struct(">i")


class ConnectionLost(Exception):
    """The broker went away; whether it did what was asked is unknown."""


class PlainClient:
    """`ask` sends a request and reads its answer; ConnectionLost when there is none."""

    def __init__(self, port: int, client_id: str = "plain") -> None:
        self._client_id = client_id
        self._correlation_id = 0
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        except OSError as error:
            raise ConnectionLost from error

    def ask(self, api_key: int, version: int, request: object) -> Any:
        self.send(api_key, version, request)
        frame = memoryview(self.read_frame())
        correlation_id, answer = read_response(api_key, version, frame)
        assert correlation_id == self._correlation_id
        return answer

    def send(self, api_key: int, version: int, request: object) -> None:
        self._correlation_id += 1
        parts = request_parts(api_key, version, self._correlation_id, self._client_id, request)
        try:
            self.socket.sendall(b"".join(parts))
        except ConnectionError as error:
            raise ConnectionLost from error

    def read_frame(self) -> bytes:
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                chunk = self.socket.recv(size - len(data))
            except ConnectionError as error:
                raise ConnectionLost from error
            if not chunk:
                raise ConnectionLost
            data += chunk
        return bytes(data)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> PlainClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
