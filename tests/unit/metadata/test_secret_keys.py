"""Secrets in the configuration: their files, and where they are never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.metadata.config.broker import BrokerConfig, load_broker_config
from ottla.metadata.config.security_keys import MAX_SECRET_BYTES
from ottla.metadata.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "canary-7d1f"
KEY = "listener.name.plaintext.plain.sasl.jaas.config"


def test_a_file_holds_the_value(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{CANARY}\n")
    config = load_broker_config(sets=[f"{KEY}.file={file}", f"ssl.key.password.file={file}"])
    assert config.listener("PLAINTEXT", "PLAIN").get_str("sasl.jaas.config") == CANARY
    assert config.get_str("ssl.key.password") == CANARY


def test_the_object_store_has_such_files_too(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(CANARY)
    config = load_broker_config(sets=[f"rsm.config.aws_secret_access_key.file={file}"])
    assert config.store_options() == {"aws_secret_access_key": CANARY}


def test_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with pytest.raises(ConfigError, match=r"ssl\.key\.password\.file: expected a file"):
        load_broker_config(sets=[f"ssl.key.password.file={file}"])
    file.write_bytes(b"x" * (MAX_SECRET_BYTES + 1))
    with pytest.raises(ConfigError, match=f"at most {MAX_SECRET_BYTES}"):
        load_broker_config(sets=[f"ssl.key.password.file={file}"])
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_broker_config(sets=[f"ssl.key.password.file={file}"])
    with pytest.raises(ConfigError, match="only one of"):
        load_broker_config(sets=["ssl.key.password=x", f"ssl.key.password.file={file}"])
    with pytest.raises(ConfigError, match="unknown configuration key"):
        load_broker_config(sets=[f"ssl.client.auth.file={file}"])


def test_case_86_nothing_is_filled_in() -> None:
    config = load_broker_config(sets=["ssl.key.password=${file:/etc/passwd:root}"])
    assert config.get_str("ssl.key.password") == "${file:/etc/passwd:root}"


@pytest.mark.parametrize("key", [KEY, "ssl.keystore.key", "rsm.config.secret"])
def test_case_82_a_configuration_does_not_show_its_secrets(key: str) -> None:
    config = BrokerConfig({key: CANARY, "num.partitions": "3"})
    assert CANARY not in repr(config)
    assert CANARY not in repr(config.listener("PLAINTEXT"))
    assert "'num.partitions': '3'" in repr(config)
    with pytest.raises(ConfigError) as refused:
        BrokerConfig({key: CANARY * 5000})
    assert CANARY not in str(refused.value)
