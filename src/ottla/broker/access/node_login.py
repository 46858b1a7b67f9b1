"""How a node logs in to another node, the tier to its own broker, and the table worker to it.

They use `inter.broker.listener.name` with its protocol. On a listener with SASL that is, in this
order: the user in `sasl.jaas.config` of the listener and of `sasl.mechanism.inter.broker.protocol`,
as in Kafka; else `__node`, whose password is a secret of the cluster in the metadata store. The
certificate of the other side is checked with `ssl.truststore.*` against the host it is known by; a
listener that asks for certificates is shown its own one.

A table worker that the broker starts does the same as `__table`; it is told how in properties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.access.certificates import tls_settings
from ottla.broker.access.credentials import NODE_USER, TABLE_USER
from ottla.client.security import Security
from ottla.metadata.errors import InvalidConfig
from ottla.security.contexts import client_context
from ottla.security.errors import BadSecuritySetting
from ottla.security.jaas import BadJaas, parse_jaas

if TYPE_CHECKING:
    from ottla.broker.access.listeners import Listener
    from ottla.metadata.config.broker import BrokerConfig, ListenerConfig
    from ottla.security.jaas import JaasConfig

CONFIGURABLE = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_OF_CLIENTS = (
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
"""TLS settings of a listener that a client of it can use as they are."""


def node_security(config: BrokerConfig, listener: Listener, password: str) -> Security:
    """What the clients in a node use; reads key stores."""
    own = config.listener(listener.name)
    context = None
    if listener.has_tls:
        checks = own.get_str("ssl.endpoint.identification.algorithm") != ""
        try:
            context = client_context(tls_settings(own), check_hostname=checks)
        except BadSecuritySetting as error:
            raise InvalidConfig(
                "key and trust stores that nodes can use", error.problem, own.where(error.key)
            ) from error
    if not listener.has_sasl:
        return Security(security_protocol=listener.protocol, ssl_context=context)
    mechanism = _mechanism(config, listener)
    user, secret = _configured(config, listener, mechanism) or (NODE_USER, password)
    return Security(
        security_protocol=listener.protocol,
        sasl_mechanism=mechanism,
        sasl_username=user,
        sasl_password=secret,
        ssl_context=context,
        allow_plaintext_password=True,  # the listener was allowed to start
    )


def worker_properties(config: BrokerConfig, listener: Listener, password: str) -> dict[str, str]:
    """What the table worker uses, as a client's properties."""
    own = config.listener(listener.name)
    found = {"security.protocol": listener.protocol}
    if listener.has_tls:
        values = {key: own.parsed(key) for key in _OF_CLIENTS}
        found |= {key: str(value) for key, value in values.items() if value is not None}
    if listener.has_sasl:
        found |= {
            "sasl.mechanism": _mechanism(config, listener),
            "sasl.username": TABLE_USER,
            "sasl.password": password,
        }
    return found


def jaas_of(config: ListenerConfig) -> JaasConfig:
    """The login module of a listener; `InvalidConfig` says what is wrong, not what it holds."""
    try:
        return parse_jaas(config.get_str("sasl.jaas.config"))
    except BadJaas as error:
        where = config.where("sasl.jaas.config")
        raise InvalidConfig("a login module of Kafka's", error, where) from None


def _mechanism(config: BrokerConfig, listener: Listener) -> str:
    key = "sasl.mechanism.inter.broker.protocol"
    enabled = config.listener(listener.name).get_list("sasl.enabled.mechanisms")
    wanted = config.get_str(key)
    if wanted in enabled and wanted in CONFIGURABLE:
        return wanted
    possible = [one for one in enabled if one in CONFIGURABLE]
    if key in config.static or not possible:
        raise InvalidConfig(
            f"a mechanism of {listener} that has passwords", f"{wanted} of {enabled}", key
        )
    return possible[0]


def _configured(config: BrokerConfig, listener: Listener, mechanism: str) -> tuple[str, str] | None:
    own = config.listener(listener.name, mechanism)
    if own.parsed("sasl.jaas.config") is None:
        return None
    jaas = jaas_of(own)
    if jaas.username is None or jaas.password is None:
        return None
    return jaas.username, jaas.password
