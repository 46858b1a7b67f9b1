"""Where passwords are hashed: in threads of their own, never on the event loop."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ottla.wire.error_codes import ErrorCode
from tests.support.doors import bootstrap, guarded_broker
from tests.support.raw_client import RawClient
from tests.support.sasl_client import log_in

if TYPE_CHECKING:
    import pytest

SASL = "SASL_PLAINTEXT"


def test_case_32_a_storm_of_logins_keeps_two_threads_busy_and_not_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = {
        "listeners": f"{SASL}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "connection.failed.authentication.delay.ms": "0",
    }
    threads: set[str] = set()
    real = hashlib.pbkdf2_hmac

    def watched(*args: Any, **options: Any) -> bytes:
        threads.add(threading.current_thread().name)
        return real(*args, **options)

    with guarded_broker(config) as broker:
        monkeypatch.setattr(hashlib, "pbkdf2_hmac", watched)
        address = bootstrap(broker, SASL)

        def fail(number: int) -> int:
            with RawClient(address) as raw:
                code: int = log_in(raw, "PLAIN", f"nobody{number}", "wrong").error_code
                return code

        with ThreadPoolExecutor(8, thread_name_prefix="client") as clients:
            codes = set(clients.map(fail, range(10)))
        monkeypatch.undo()
    assert codes == {ErrorCode.SASL_AUTHENTICATION_FAILED}
    assert 1 <= len(threads) <= 2
    assert all(name.startswith("ottla-password") for name in threads)
