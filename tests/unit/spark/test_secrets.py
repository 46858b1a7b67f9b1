"""Secrets in options of a query: where they may come from, and where they must not show."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from ottla.client.security import Security
from ottla.objects.location import BadLocation, parse_location
from ottla.spark.client_settings import ClientSettings, client_settings
from ottla.spark.errors import BadOption
from ottla.spark.tier.settings import tier_settings

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = {
    "kafka.bootstrap.servers": "h:9093",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "alice",
    "kafka.ssl.truststore.location": "/ca.pem",
}
EXPECTED = Security("SASL_SSL", "SCRAM-SHA-512", "alice", "canary", ssl_ca="/ca.pem")


def settings(**more: str) -> ClientSettings:
    named = {f"kafka.{name.replace('_', '.')}": value for name, value in more.items()}
    return client_settings(OPTIONS | named, writes=False)


@pytest.fixture(autouse=True)
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "secrets"
    directory.mkdir()
    (directory / "password").write_text("canary\n")
    (tmp_path / "outside").write_text("canary")
    monkeypatch.setenv("OTTLA_SECRET_DIRS", str(directory))
    monkeypatch.setenv("OTTLA_SECRET_PASSWORD", "canary")
    return directory


def test_plain_options_in_both_dialects() -> None:
    assert settings(sasl_password="canary").security == EXPECTED
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="canary";'
    )
    assert settings(sasl_jaas_config=jaas).security == EXPECTED
    assert "canary" not in repr(settings(sasl_password="canary"))


def test_a_file_or_a_variable_is_read_by_each_process(secrets: Path) -> None:
    """What is sent to tasks names the secret and does not hold it."""
    for found in (
        settings(sasl_password_file=str(secrets / "password")),
        settings(sasl_password_env="OTTLA_SECRET_PASSWORD"),
    ):
        sent = pickle.dumps(found)
        assert b"canary" not in sent
        assert pickle.loads(sent).security == EXPECTED


def test_a_plain_secret_reaches_the_tasks() -> None:
    assert pickle.loads(pickle.dumps(settings(sasl_password="canary"))).security == EXPECTED


@pytest.mark.parametrize("path", ["/etc/hostname", "/etc/passwd", "relative", "{}/../outside"])
def test_files_outside_of_the_fence_are_refused_case_107(secrets: Path, path: str) -> None:
    with pytest.raises(BadOption, match="not below OTTLA_SECRET_DIRS") as failure:
        settings(sasl_password_file=path.format(secrets))
    assert "canary" not in str(failure.value)


def test_a_link_out_of_the_fence_is_refused_case_107(secrets: Path) -> None:
    (secrets / "link").symlink_to(secrets.parent / "outside")
    with pytest.raises(BadOption, match="not below OTTLA_SECRET_DIRS"):
        settings(sasl_password_file=str(secrets / "link"))


@pytest.mark.parametrize("name", ["HOME", "PATH", "OTTLA_SECRET_DIRS", "AWS_SECRET_ACCESS_KEY"])
def test_other_variables_are_refused_case_107(name: str) -> None:
    with pytest.raises(BadOption, match="must begin with OTTLA_SECRET_"):
        settings(sasl_password_env=name)


def test_text_is_not_expanded_case_86() -> None:
    assert settings(sasl_password="${env:HOME}").security.sasl_password == "${env:HOME}"


@pytest.mark.parametrize(
    "url",
    ["s3://key:canary@bucket/x", "az://account/x?sig=canary", "https://me:canary@host/bucket"],
)
def test_a_place_with_credentials_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(BadOption, match=r"tierUrl: .*without credentials") as failure:
        tier_settings({"tierurl": url})
    assert "canary" not in str(failure.value)
    with pytest.raises(BadLocation) as cause:
        parse_location({"rsm.config.url": url})
    assert "canary" not in str(cause.value)
