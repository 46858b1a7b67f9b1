"""Certificates that are replaced while a broker process runs (case 13)."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING

from ottla.wire.schema.api_versions import ApiVersionsRequest
from tests.support.tls_client import RawTlsClient

if TYPE_CHECKING:
    from tests.support.doors import TlsFiles

NAMED = ApiVersionsRequest("tests", "1.0")


def shown(where: str, tls_files: TlsFiles) -> bytes | None:
    with RawTlsClient(where, tls_files.ca) as client:
        assert client.ask("api_versions", 3, NAMED).error_code == 0
        return client.tls.getpeercert(binary_form=True)


def test_case_13_sighup_takes_a_new_certificate_and_old_connections_go_on(
    tls_files: TlsFiles,
) -> None:
    store = tls_files.server("hup", "localhost", "127.0.0.1")
    program = [sys.executable, "-m", "ottla.cli", "broker", "--ephemeral"]
    program += ["--set", "listeners=SSL://127.0.0.1:0", "--log-level", "info"]
    program += ["--set", f"ssl.keystore.location={store}"]
    program += ["--set", "ottla.ssl.reload.interval.ms=0"]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        where = process.stdout.readline().split()[-1]
        with RawTlsClient(where, tls_files.ca) as old:
            first = shown(where, tls_files)
            tls_files.server("hup", "localhost", "127.0.0.1")
            assert shown(where, tls_files) == first
            process.send_signal(signal.SIGHUP)
            for line in process.stderr:
                if "new certificate taken" in line:
                    break
            second = shown(where, tls_files)
            assert second not in (None, first)
            store.write_text("broken")
            process.send_signal(signal.SIGHUP)
            for line in process.stderr:
                if "keeps its certificate" in line:
                    break
            assert shown(where, tls_files) == second
            assert old.ask("api_versions", 3, NAMED).error_code == 0
            assert isinstance(old.tls, ssl.SSLSocket)
        process.terminate()
    assert process.returncode == 0
