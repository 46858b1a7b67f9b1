"""Apache Kafka with its authorizer, and users who log in with PLAIN: the judge of our rights."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.wire.schema.delete_acls import DeleteAclsRequest
from ottla.wire.schema.describe_acls import DescribeAclsRequest
from ottla.wire.schema.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.schema.sasl_handshake import SaslHandshakeRequest
from tests.support.jvm import ApacheKafka
from tests.support.ports import free_ports
from tests.support.rights import EVERYTHING, USERS, RightsPlace
from tests.support.shared_kafka import CONFIG, QUICK

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from ottla.metadata.security.acls import Acl
    from tests.support.raw_client import RawClient

PATIENCE: Final = 30.0
ALL: Final = DescribeAclsRequest(1, None, 1, None, None, 1, 1)


class _Kafka(ApacheKafka):
    """Beside its usual listener, on which everybody is a super user, it has one with SASL."""

    users: str

    def _configure(self, directory: Path) -> None:
        super()._configure(directory)
        (port,) = free_ports(1)
        self.users = f"127.0.0.1:{port}"
        known = " ".join(f'user_{user}="{user}"' for user in USERS)
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        self.config |= {
            "listeners": f"{self.config['listeners']},USERS://{self.users}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.users.plain.sasl.jaas.config": f"{login} required {known};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:root",
            "auto.create.topics.enable": "true",
            "num.partitions": "1",
        }
        lines = [f"{key}={value}\n" for key, value in self.config.items()]
        self.config_file.write_text("".join(lines))


class JudgingKafka(RightsPlace):
    """As `RightsBroker`, with Apache Kafka."""

    def __init__(self) -> None:
        super().__init__()
        self.kafka = _Kafka(heap="512m", config=CONFIG, jvm_options=QUICK)

    def bootstrap(self, user: str) -> str:
        return self.kafka.bootstrap if user == "root" else self.kafka.users

    def connect(self, user: str, *, client_id: str = "raw") -> RawClient:
        client = super().connect(user, client_id=client_id)
        if user != "root":
            shaken = client.ask("sasl_handshake", 1, SaslHandshakeRequest("PLAIN"))
            assert shaken.error_code == 0, shaken
            token = f"\0{user}\0{user}".encode()
            known = client.ask("sasl_authenticate", 1, SaslAuthenticateRequest(token))
            assert known.error_code == 0, known
        return client

    def set(self, acls: Sequence[Acl]) -> None:
        """The broker hears of ACLs a little after the controller has answered."""
        self.ask("root", "delete_acls", 3, DeleteAclsRequest([EVERYTHING]))
        self._wait_for(0)
        super().set(acls)
        self._wait_for(len(set(acls)))

    def _wait_for(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._count() != count:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def _count(self) -> int:
        answer: Any = self.ask("root", "describe_acls", 3, ALL)
        return sum(len(resource.acls) for resource in answer.resources)

    def __enter__(self) -> Self:
        self.kafka.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self.kafka.__exit__(kind, error, traceback)
