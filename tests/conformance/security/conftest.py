"""Certificates for the tests of this folder, and a broker whose listeners are users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.doors import make_tls_files
from tests.support.rights import rights_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.doors import TlsFiles
    from tests.support.rights import RightsBroker


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def place() -> Iterator[RightsBroker]:
    """Module-wide: tests set the ACLs they need."""
    with rights_broker() as made:
        yield made
