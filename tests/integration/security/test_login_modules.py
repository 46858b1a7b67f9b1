"""Names of login modules run nothing: broker, client and Spark refuse them (case 85).

CVE-2023-25194, CVE-2025-27818 and CVE-2025-27819: a module named in `sasl.jaas.config` connected to
an LDAP server, which sent code. Such a server listens here, and nobody comes.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import ottla
from ottla.cli.whole import app
from ottla.errors import OttlaError
from ottla.spark.client_settings import client_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULES = [
    "com.sun.security.auth.module.JndiLoginModule",
    "com.sun.security.auth.module.LdapLoginModule",
    "com.sun.security.auth.module.KeyStoreLoginModule",
    "com.example.AnyLoginModule",
]


@pytest.fixture
def ldap() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def jaas(module: str, ldap: socket.socket) -> str:
    port = ldap.getsockname()[1]
    urls = f'user.provider.url="ldap://127.0.0.1:{port}/x" group.provider.url="ldap://x/y"'
    return f'{module} required userProvider="ldap://127.0.0.1:{port}/x" {urls};'


@pytest.mark.parametrize("module", MODULES)
def test_case_85_a_broker_does_not_start(module: str, ldap: socket.socket) -> None:
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas(module, ldap),
    }
    with pytest.raises(OttlaError, match=r"sasl\.jaas\.config") as refused:
        ottla.EmbeddedBroker(config=config).start()
    assert module in str(refused.value)


@pytest.mark.parametrize("module", MODULES)
def test_case_85_a_command_does_not_connect(
    module: str, ldap: socket.socket, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={jaas(module, ldap)}\n"
    )
    args = ["topic", "list", "--bootstrap", "127.0.0.1:1", "--command-config", str(file)]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 2
    assert module in result.stderr.replace("\n", "")


@pytest.mark.parametrize("module", MODULES)
def test_case_85_an_option_of_spark_is_refused(module: str, ldap: socket.socket) -> None:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": jaas(module, ldap),
    }
    with pytest.raises(OttlaError, match=module):
        client_settings(options, writes=False)
