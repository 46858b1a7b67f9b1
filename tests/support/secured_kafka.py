"""Apache Kafka with a SASL_SSL listener, SCRAM users and an authorizer, beside its plain one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import ottla
from ottla.testing.secured import certificates
from tests.support.jvm import ApacheKafka
from tests.support.ports import free_ports
from tests.support.shared_kafka import CONFIG, QUICK

if TYPE_CHECKING:
    from pathlib import Path

ADMIN: Final = "admin"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class SecuredKafka(ApacheKafka):
    """`secure_bootstrap` wants TLS and a login; who comes by the plain listener may do all."""

    secure_bootstrap: str

    def __init__(self) -> None:
        super().__init__(heap="512m", config=CONFIG, jvm_options=QUICK)

    def _configure(self, directory: Path) -> None:
        super()._configure(directory)
        [port] = free_ports(1)
        self.secure_bootstrap = f"127.0.0.1:{port}"
        self.config |= {
            "listeners": f"{self.config['listeners']},SASL_SSL://{self.secure_bootstrap}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates().server("127.0.0.1")),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
            **{
                f"listener.name.sasl_ssl.{one}.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                )
                for one in ("scram-sha-512", "scram-sha-256")
            },
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        }
        lines = [f"{key}={value}\n" for key, value in self.config.items()]
        self.config_file.write_text("".join(lines))

    def create_user(self, name: str, password: str) -> None:
        with ottla.sync.Admin(self.bootstrap) as admin:
            admin.create_user(name, password, iterations=4096)
