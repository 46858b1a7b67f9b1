"""Secrets that clients send: in no log line, whatever its level, and in no file."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.wire.schema.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.doors import bootstrap, guarded_broker
from tests.support.raw_client import RawClient
from tests.support.sasl_client import log_in

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SASL = "SASL_PLAINTEXT"
CANARY = "canary-b0d9a7"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def test_case_82_and_84_nothing_of_a_request_with_a_secret_is_logged_or_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    data = tmp_path / "data"
    config = {
        "listeners": f"{SASL}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ottla.audit.file": str(tmp_path / "audit.log"),
        "ottla.audit.allowed": "all",
    }
    with guarded_broker(config, users={"alice": CANARY}, data_dir=data) as broker:
        for mechanism in MECHANISMS:
            for password in (CANARY, CANARY + "-wrong"):
                with RawClient(bootstrap(broker, SASL)) as raw:
                    log_in(raw, mechanism, "alice", password)
        with RawClient(bootstrap(broker, "PLAINTEXT")) as raw:
            secret = ScramCredentialUpsertion("bob", 1, 4096, b"salt" * 4, CANARY.encode() * 3)
            request = AlterUserScramCredentialsRequest([], [secret])  # too long: it is refused
            raw.ask("alter_user_scram_credentials", 0, request)
            for key in ("sasl.jaas.config", "ssl.key.password", "no.such.key"):
                altered = AlterConfigsResource(4, "1", [AlterableConfig(key, 0, CANARY)])
                raw.ask("incremental_alter_configs", 1, IncrementalAlterConfigsRequest([altered]))
            # A frame that cannot be read, with the secret in it.
            frame = b"\x00\x24\x00\x02" + CANARY.encode() * 3
            raw._socket.sendall(len(frame).to_bytes(4, "big") + frame)
            assert raw.closed()
    assert CANARY not in caplog.text
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert CANARY.encode() not in file.read_bytes(), file
