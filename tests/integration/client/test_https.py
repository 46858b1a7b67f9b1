"""Documents over HTTPS: what is refused, and what errors do not tell (case 87)."""

from __future__ import annotations

import ssl
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.errors import AuthenticationFailed
from ottla.client.https import FetchFailed, fetch
from ottla.client.security import Security, Token
from ottla.client.token_endpoint import fetch_token
from ottla.testing.secured import certificates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Answer = "Callable[[BaseHTTPRequestHandler], None]"


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def do_POST(self) -> None:
            self.body = self.rfile.read(int(self.headers["Content-Length"]))
            answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates().server("127.0.0.1"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/document"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates().ca))


def says(body: bytes, status: int = 200, **headers: str) -> Callable[[Any], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def slowly(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(50):
        try:
            handler.wfile.write(b"canary")
            handler.wfile.flush()
        except OSError:
            return
        time.sleep(0.05)


def test_a_document() -> None:
    with serving(says(b"canary")) as url:
        assert fetch(url, seconds=5, context=trusting()) == b"canary"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (says(b"canary", 302, Location="http://127.0.0.1/canary"), "redirects"),
        (says(b"canary", 302, Location="https://other.example/canary"), "redirects"),
        (says(b"canary", 307, Location="/canary"), "redirects|307"),
        (says(b"canary", 500), "status 500"),
        (says(b"canary", 404), "status 404"),
        (says(b"canary" * 60_000), "more than 262144 bytes"),
        (slowly, "longer than 0.3 s"),
    ],
)
def test_what_is_refused_case_87(answer: Callable[[Any], None], said: str) -> None:
    with serving(answer) as url, pytest.raises(FetchFailed, match=said) as failure:
        fetch(url, seconds=0.3 if answer is slowly else 5, context=trusting())
    assert "canary" not in str(failure.value)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://127.0.0.1:1/", "ftp://x/", "x"])
def test_other_schemes_are_refused_case_87(url: str) -> None:
    with pytest.raises(FetchFailed, match="does not begin with https"):
        fetch(url, seconds=5)


def test_a_server_that_is_not_trusted() -> None:
    with serving(says(b"canary")) as url, pytest.raises(FetchFailed, match="SSL"):
        fetch(url, seconds=5)


def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    with serving(says(b"canary")) as url:
        assert fetch(url, seconds=5, context=trusting()) == b"canary"


def client(url: str) -> Security:
    return Security(
        "SASL_SSL",
        "OAUTHBEARER",
        ssl_ca=certificates().ca,
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_oauthbearer_client_id="id",
        sasl_oauthbearer_client_secret="canary",
        sasl_oauthbearer_scope="kafka",
    )


def test_tokens_of_a_server() -> None:
    asked: list[Any] = []

    def answer(handler: Any) -> None:
        asked.append((handler.headers["Authorization"], handler.body))
        says(b'{"access_token": "a.b.c", "expires_in": 60}')(handler)

    with serving(answer) as url:
        assert fetch_token(client(url), lambda: 100.0) == Token("a.b.c", 160.0)
    assert asked == [("Basic aWQ6Y2FuYXJ5", b"grant_type=client_credentials&scope=kafka")]


@pytest.mark.parametrize("body", [b"[]", b"canary", b'{"access_token": 3}', b'{"error": "canary"}'])
def test_answers_without_a_token_are_not_quoted(body: bytes) -> None:
    with serving(says(body)) as url, pytest.raises(AuthenticationFailed) as failure:
        fetch_token(client(url), lambda: 100.0)
    assert "has no access_token" in str(failure.value)
    assert "canary" not in str(failure.value)
