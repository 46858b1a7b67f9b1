"""S3 servers on loopback: moto's, and MinIO's where its program is installed.

MinIO is looked for in the PATH and in `~/.cache/ottla-s3/bin`;
`GOBIN=~/.cache/ottla-s3/bin go install github.com/minio/minio@latest` puts it there.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET: Final = "segments"
_USER: Final = "ottla-tests"
_SECRET: Final = "ottla-tests-secret"
_CACHE: Final = Path.home() / ".cache" / "ottla-s3" / "bin" / "minio"
_START_TIMEOUT: Final = 30.0


def minio_program() -> Path | None:
    """Where MinIO's program is, None if it is not installed."""
    found = shutil.which("minio")
    if found is not None:
        return Path(found)
    return _CACHE if _CACHE.is_file() else None


def rsm_config(endpoint: str, prefix: str) -> dict[str, str]:
    """The broker settings of a location on such a server."""
    return {
        "rsm.config.url": f"s3://{BUCKET}/{prefix}",
        "rsm.config.endpoint": endpoint,
        "rsm.config.region": "us-east-1",
        "rsm.config.access.key.id": _USER,
        "rsm.config.secret.access.key": _SECRET,
    }


@contextmanager
def moto_server() -> Iterator[str]:
    """moto's server; its URL."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        make_bucket(endpoint)
        yield endpoint
    finally:
        server.stop()


@contextmanager
def minio_server(directory: Path, *, log: Path | None = None) -> Iterator[str]:
    """A MinIO server that keeps its objects in `directory`; its URL."""
    program = minio_program()
    if program is None:
        raise RuntimeError("MinIO is not installed; see tests/support/s3.py")
    port, console = free_ports(2)
    with (log or Path(os.devnull)).open("wb") as output:
        process = subprocess.Popen(
            [
                program,
                "server",
                "--quiet",
                "--address",
                f"127.0.0.1:{port}",
                "--console-address",
                f"127.0.0.1:{console}",
                directory,
            ],
            env={
                **os.environ,
                "MINIO_ROOT_USER": _USER,
                "MINIO_ROOT_PASSWORD": _SECRET,
                "MINIO_BROWSER": "off",
                "MINIO_UPDATE": "off",
            },
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_live(process, port)
            endpoint = f"http://127.0.0.1:{port}"
            make_bucket(endpoint)
            yield endpoint
        finally:
            process.terminate()
            process.wait(timeout=_START_TIMEOUT)


def make_bucket(endpoint: str) -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=_USER,
        aws_secret_access_key=_SECRET,
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()


def _wait_until_live(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"MinIO ended with status {process.returncode}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/minio/health/live")
            if connection.getresponse().status == http.client.OK:
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise RuntimeError("MinIO did not answer in time")
