"""The pages about security work as typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.desk import Desk

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long


def test_secure_a_broker(tmp_path: Path) -> None:
    with Desk("how-to/secure-a-broker", tmp_path) as desk:
        assert "client settings of the user admin: ottla-data/admin.properties" in desk.shell()
        desk.shell()
        desk.shell("correct horse", "correct horse")
        (tmp_path / "ca.pem").write_bytes((tmp_path / "ottla-data/tls/ca.pem").read_bytes())
        desk.program()
        assert "orders" in desk.run("ottla topic list")
        assert "alice" in desk.run("ottla user list")


def test_users_and_rights(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("correct horse\n")
    with Desk("how-to/users-and-rights", tmp_path) as desk:
        desk.run(
            "ottla broker --set authorizer.class.name=standard --set super.users=User:ANONYMOUS"
        )
        assert "batch" in desk.shell("correct horse", "correct horse")
        desk.shell("correct horse", "correct horse")
        desk.shell()
        assert "alice" in desk.shell()
        assert desk.shell() == "allowed: allow User:alice write topic:orders\n"
        assert "alice" in desk.session()


def test_certificates(tmp_path: Path) -> None:
    name = "broker.example.com"
    with Desk("reference/certificates", tmp_path, {name: name}) as desk:
        assert name in desk.shell()
