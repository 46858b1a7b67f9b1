"""The pytest plugin, active wherever Ottla is installed.

- `ottla_broker`: one broker for the whole session.
- `ottla_topic`: the name of a fresh topic on it for each test, deleted afterwards.
- `ottla_secure_broker`: one broker for the whole session that wants TLS and a login; its user
  `admin` may do everything.
- `ottla_cluster`: three nodes for one test, which may kill them.
- `ottla_user`: a fresh user of it for each test, without rights until `ottla_user.allow(...)`.

Nothing is imported or started until a test asks for one of them.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.client.security import Security
    from ottla.testing.embedded import EmbeddedBroker
    from ottla.testing.secured import ClientKind

_numbers = count(1)


@pytest.fixture(scope="session")
def ottla_broker() -> Iterator[EmbeddedBroker]:
    """A broker shared by all tests of the session; `ottla_broker.bootstrap` is its address."""
    from ottla.testing.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def ottla_topic(ottla_broker: EmbeddedBroker) -> Iterator[str]:
    """The name of an empty topic with one partition, this test's own."""
    name = f"ottla-topic-{next(_numbers)}"
    ottla_broker.create_topic(name)
    yield name
    ottla_broker.delete_topic(name)


@pytest.fixture(scope="session")
def ottla_secure_broker() -> Iterator[EmbeddedBroker]:
    """A SASL_SSL broker shared by all tests of the session; its super user is `admin`."""
    from ottla.testing.embedded import EmbeddedBroker
    from ottla.testing.secured import Secured

    secured = Secured(users={"admin": secrets.token_urlsafe()}, super_users=["admin"])
    with EmbeddedBroker(security=secured) as broker:
        yield broker


@pytest.fixture
def ottla_cluster() -> Iterator[EmbeddedBroker]:
    """Three nodes, this test's own, which may kill, stop, start and move with them."""
    from ottla.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(nodes=3) as broker:
        yield broker


@dataclass(frozen=True, slots=True)
class SecureUser:
    """A user of `ottla_secure_broker`."""

    broker: EmbeddedBroker
    name: str
    password: str = field(repr=False)

    def allow(self, *rights: str) -> None:
        """Give rights, each as text: `read,describe topic:orders*`."""
        self.broker.create_acls(*(f"allow {self.name} {one}" for one in rights))

    @property
    def security(self) -> Security:
        """How the user connects with Ottla's own clients."""
        return self.broker.security(self.name)

    @property
    def properties(self) -> dict[str, Any]:
        """The properties of a confluent-kafka client."""
        return self.broker.properties(self.name)

    def options(self, client: ClientKind) -> dict[str, Any]:
        """Arguments of a client of another kind."""
        return self.broker.options(self.name, client)


@pytest.fixture
def ottla_user(ottla_secure_broker: EmbeddedBroker) -> SecureUser:
    """A user without any rights, this test's own."""
    user = SecureUser(ottla_secure_broker, f"ottla-user-{next(_numbers)}", secrets.token_urlsafe())
    ottla_secure_broker.create_user(user.name, user.password)
    return user
