"""The broker keys that say who may come in and how: TLS and SASL of listeners, rights, limits.

All of them are read once at start, and none can be altered over the wire; limits of connections,
which are no secret and load nothing, can, also for one listener. Names are Kafka's; three
defaults differ: key stores are PEM, mechanisms are SCRAM, and one frame of a client that has not
authenticated has at most 128 KiB.

- A key in `PER_LISTENER` may be set for one listener: `listener.name.<name>.<key>`, the name in
  lower case. A key in `PER_MECHANISM` also for one mechanism of it:
  `listener.name.<name>.<mechanism>.<key>`. The most specific one wins (`BrokerConfig.listener`).
- A sensitive key has a twin `<key>.file` that names a file with the value.
- Keys that would load a class by its name are refused, whatever they are set to: this is how
  several holes in Kafka came about.
"""

from __future__ import annotations

import re
from typing import Final

from ottla.metadata.config.types import (
    INT_MAX,
    LONG_MAX,
    AtLeast,
    Between,
    ConfigDef,
    ConfigType,
    EachOf,
    Matching,
    OneOf,
    Rule,
)

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
AUTHORIZERS: Final = ("", "standard", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
FILE_SUFFIX: Final = ".file"
MAX_SECRET_BYTES: Final = 64 * 1024  # of a file with a secret: a key with its chain is 10 KiB

_INT, _LONG, _BOOL = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN
_TEXT, _LIST = ConfigType.STRING, ConfigType.LIST

LISTENER_PREFIX: Final = "listener.name."
_STORE_TYPES: Final = Matching(r"(?i:PEM|PKCS12|JKS)", "PEM, PKCS12 or JKS")


def _fixed(
    name: str, kind: ConfigType, default: object, doc: str, rule: Rule | None = None,
    *, sensitive: bool = False,
) -> ConfigDef:  # fmt: skip
    text = None if default is None else str(default)
    return ConfigDef(name, kind, text, doc, rule=rule, dynamic=False, sensitive=sensitive)


_TLS: Final = [
    _fixed("ssl.keystore.type", _TEXT, None,
           "PEM or PKCS12; default: told from the file. JKS cannot be read.", _STORE_TYPES),
    _fixed("ssl.keystore.location", _TEXT, None,
           "File with the private key and the certificates of a TLS listener."),
    _fixed("ssl.keystore.password", _TEXT, None, "Password of the key store.", sensitive=True),
    _fixed("ssl.keystore.key", _TEXT, None, "Private key as PEM text.", sensitive=True),
    _fixed("ssl.keystore.certificate.chain", _TEXT, None, "Certificates as PEM text."),
    _fixed("ssl.key.password", _TEXT, None, "Password of the private key.", sensitive=True),
    _fixed("ssl.truststore.type", _TEXT, None,
           "PEM or PKCS12; default: told from the file. JKS cannot be read.", _STORE_TYPES),
    _fixed("ssl.truststore.location", _TEXT, None,
           "File with the certificates of the authorities that sign clients."),
    _fixed("ssl.truststore.password", _TEXT, None, "Password of the trust store.", sensitive=True),
    _fixed("ssl.truststore.certificates", _TEXT, None, "The same certificates as PEM text."),
    _fixed("ssl.client.auth", _TEXT, "none", "Whether clients show a certificate.",
           OneOf(("none", "requested", "required"))),
    _fixed("ssl.principal.mapping.rules", _TEXT, "DEFAULT",
           "How the subject of a client's certificate becomes a user."),
    _fixed("ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3", "Versions of TLS to speak.",
           EachOf(("TLSv1.2", "TLSv1.3"), most=2)),
    _fixed("ssl.cipher.suites", _LIST, None, "Cipher suites of TLS 1.2; default: all safe ones."),
    _fixed("ssl.endpoint.identification.algorithm", _TEXT, "https",
           "https: a node checks the host name in the certificate of another node; empty: not.",
           OneOf(("https", ""))),
    _fixed("ssl.allow.dn.changes", _BOOL, "false",
           "Take a replaced certificate whose subject differs."),
    _fixed("ssl.allow.san.changes", _BOOL, "false",
           "Take a replaced certificate whose names differ."),
    _fixed("ottla.ssl.crl.location", _TEXT, None, "PEM file with revoked certificates."),
    _fixed("ottla.ssl.reload.interval.ms", _LONG, 10_000,
           "How often to look for replaced certificate files; 0: at SIGHUP alone.", AtLeast(0)),
]  # fmt: skip

_SASL: Final = [
    _fixed("sasl.enabled.mechanisms", _LIST, "SCRAM-SHA-512,SCRAM-SHA-256",
           "How clients of a SASL listener may log in.", EachOf(MECHANISMS, len(MECHANISMS))),
    _fixed("sasl.mechanism.inter.broker.protocol", _TEXT, "SCRAM-SHA-512",
           "How nodes log in to each other.", OneOf(MECHANISMS)),
    _fixed("sasl.jaas.config", _TEXT, None,
           "Login module with users of PLAIN, or with the user of this node.", sensitive=True),
    _fixed("sasl.server.max.receive.size", _INT, 131_072,
           "Largest frame of a client that has not authenticated.", AtLeast(1024)),
    _fixed("connections.max.reauth.ms", _LONG, 0,
           "How long an authentication is valid; clients repeat it before. 0: for ever.",
           Between(0, LONG_MAX)),
    _fixed("connection.failed.authentication.delay.ms", _INT, 100,
           "How long after its request a failed authentication is answered; at least 50.",
           Between(0, INT_MAX)),
    _fixed("sasl.oauthbearer.jwks.endpoint.url", _TEXT, None,
           "Where the keys are that sign tokens: https:// or file://."),
    _fixed("sasl.oauthbearer.expected.issuer", _TEXT, None, "Issuer that tokens must name."),
    _fixed("sasl.oauthbearer.expected.audience", _LIST, None,
           "Audiences, one of which tokens must name."),
    _fixed("sasl.oauthbearer.clock.skew.seconds", _INT, 30,
           "How far clocks of token issuers may be off.", AtLeast(0)),
    _fixed("sasl.oauthbearer.jwks.endpoint.refresh.ms", _LONG, 3_600_000,
           "How often the keys are fetched again.", AtLeast(1)),
    _fixed("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _LONG, 100,
           "Shortest pause between two fetches of the keys.", AtLeast(1)),
    _fixed("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _LONG, 10_000,
           "Longest pause between two fetches that fail.", AtLeast(1)),
    _fixed("sasl.oauthbearer.scope.claim.name", _TEXT, "scope",
           "Claim with the scopes of a token."),
    _fixed("sasl.oauthbearer.sub.claim.name", _TEXT, "sub", "Claim with the user of a token."),
    _fixed("ottla.sasl.oauthbearer.principal.mapping.rules", _TEXT, "DEFAULT",
           "How that claim becomes a user; the rules are those of ssl.principal.mapping.rules."),
    _fixed("ottla.sasl.oauthbearer.required.scope", _LIST, None,
           "Scopes that a token must have, all of them."),
]  # fmt: skip

_DOOR: Final = [
    _fixed("ottla.allow.insecure.listeners", _BOOL, "false",
           "Start although a listener lets anyone on the network in; --insecure."),
    _fixed("ottla.authentication.timeout.ms", _INT, 10_000,
           "How long TLS handshake and authentication may take together.", AtLeast(1)),
    _fixed("ottla.authentications.max", _INT, 256,
           "Most clients that authenticate at the same time; others wait.", AtLeast(1)),
    _fixed("ottla.lobby.wait.ms", _INT, 30_000,
           "How long a connection waits for its turn to authenticate.", AtLeast(1)),
    _fixed("max.connections.per.ip.overrides", _TEXT, "",
           "Other limits than max.connections.per.ip for some addresses: ip:number,ip:number.",
           Matching(r"(\s*[^,\s]+:[0-9]+\s*(,|$))*", "127.0.0.1:100,10.0.0.7:5")),
    _fixed("ottla.disconnect.on.credential.change", _BOOL, "true",
           "Close the connections of a user whose password was changed, or who was deleted."),
    _fixed("ottla.bootstrap.user.file", _TEXT, None,
           "File with a user (`ottla user hash`) that is made while there is none."),
]  # fmt: skip

_HTTP: Final = [
    _fixed("ottla.metrics.listener", _TEXT, None,
           "Where to serve /metrics, /healthz and /readyz; --metrics-port. Its TLS settings begin "
           "with listener.name.metrics.",
           Matching(r"https?://(\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]+):[0-9]{1,5}",
                    "http://127.0.0.1:9100")),
    _fixed("ottla.metrics.token", _TEXT, None,
           "What a scraper of /metrics must send: Authorization: Bearer TOKEN.", sensitive=True),
    _fixed("ottla.console.listener", _TEXT, None,
           "Where to serve the web console, a process of its own; --console.",
           Matching(r"http://(\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]+):[0-9]{1,5}",
                    "http://127.0.0.1:9095")),
    _fixed("ottla.console.write", _BOOL, "false",
           "Whether visitors of the console may change something; --console-write."),
    _fixed("ottla.console.idle.exit.ms", _INT, 900_000,
           "The console's process ends after this time without a request; 0: never.", AtLeast(0)),
    _fixed("ottla.registry.listener", _TEXT, None,
           "Where to serve the schema registry; --registry. Its TLS settings begin with "
           "listener.name.registry.",
           Matching(r"https?://(\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]+):[0-9]{1,5}",
                    "http://127.0.0.1:8081")),
    _fixed("ottla.registry.authentication", _TEXT, "auto",
           "Whether the registry asks who comes: required, none, or auto: where there is an "
           "authorizer, or where client certificates are required.",
           OneOf(("auto", "required", "none"))),
    _fixed("ottla.registry.topic", _TEXT, "_schemas",
           "Topic in which the registry keeps its schemas; no client writes to it meanwhile.",
           Matching(r"[A-Za-z0-9._-]{1,249}", "_schemas")),
    _fixed("ottla.registry.compatibility", _TEXT, "BACKWARD",
           "Compatibility of new schemas where the registry has been told none.",
           OneOf(("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE",
                  "FULL", "FULL_TRANSITIVE"))),
    _fixed("ottla.registry.max.body.bytes", _INT, 5_242_880,
           "Longest request that the registry takes.", Between(1024, 5_242_880)),
]  # fmt: skip

_AUDIT: Final = [
    _fixed("ottla.audit.file", _TEXT, None,
           "File of the audit log; default: the broker's log. At SIGHUP it is opened anew."),
    _fixed("ottla.audit.allowed", _TEXT, "admin",
           "Which requests that are allowed are in it: none, those that change the cluster, all.",
           OneOf(("none", "admin", "all"))),
]  # fmt: skip

_RIGHTS: Final = [
    _fixed("authorizer.class.name", _TEXT, "",
           "standard, or the name of Kafka's StandardAuthorizer: requests need ACLs.",
           OneOf(AUTHORIZERS)),
    _fixed("super.users", _TEXT, "", "Users that may do everything: User:name;User:name.",
           Matching(r"(\s*[^;:]+:[^;]+(;|$))*", "User:admin;User:ops")),
    _fixed("allow.everyone.if.no.acl.found", _BOOL, "false",
           "Allow everything on a topic, group or other resource that no ACL names."),
]  # fmt: skip

_QUOTAS: Final = [
    _fixed("quota.window.num", _INT, 11, "Windows over which rates of clients are measured.",
           Between(1, 1000)),
    _fixed("quota.window.size.seconds", _INT, 1, "Length of such a window.", Between(1, 3600)),
    _fixed("controller.quota.window.num", _INT, 11,
           "Windows whose worth of changes of topics a client may make at once.", Between(1, 1000)),
    _fixed("controller.quota.window.size.seconds", _INT, 1, "Length of such a window.",
           Between(1, 3600)),
]  # fmt: skip

SECURITY_CONFIGS: Final = [*_TLS, *_SASL, *_DOOR, *_HTTP, *_AUDIT, *_RIGHTS, *_QUOTAS]

_GLOBAL: Final = {"ottla.ssl.reload.interval.ms", "sasl.mechanism.inter.broker.protocol"}
PER_LISTENER: Final = frozenset(
    {one.name for one in [*_TLS, *_SASL]} - _GLOBAL
    | {"max.connections", "max.connection.creation.rate"}
)
PER_MECHANISM: Final = frozenset({"sasl.jaas.config", "connections.max.reauth.ms"})

# Not compiled: a broker with keys that are known does not need them.
_CLASSES: Final = (
    r"principal\.builder\.class|.*\.callback\.handler\.class|security\.providers"
    r"|ssl\.engine\.factory\.class|ssl\.secure\.random\.implementation|config\.providers.*"
    r"|(alter\.config|create\.topic)\.policy\.class\.name|client\.quota\.callback\.class"
)
_NOT_SUPPORTED: Final = (
    r"sasl\.login\..*|delegation\.token\..*"
    r"|sasl\.kerberos\.(service\.name|principal\.to\.local\.rules)"
)


class ListenerKey:
    """A key that is set for one listener, perhaps for one mechanism of it."""

    __slots__ = ("key", "listener", "mechanism")

    def __init__(self, listener: str, mechanism: str | None, key: str) -> None:
        self.listener = listener
        self.mechanism = mechanism
        self.key = key

    @classmethod
    def parse(cls, text: str) -> ListenerKey | None:
        """None for any other key, and for one that cannot be set for a listener."""
        if not text.startswith(LISTENER_PREFIX):
            return None
        listener, _, key = text.removeprefix(LISTENER_PREFIX).partition(".")
        if key in PER_LISTENER:
            return cls(listener, None, key)
        mechanism, _, rest = key.partition(".")
        if mechanism.upper() in MECHANISMS and rest in PER_MECHANISM:
            return cls(listener, mechanism, rest)
        return None


def refusal(key: str) -> str | None:
    """Why a security key of Kafka's is refused, or None."""
    bare = key
    if key.startswith(LISTENER_PREFIX):
        bare = key.removeprefix(LISTENER_PREFIX).partition(".")[2]
    if re.fullmatch(_CLASSES, bare):
        return "no such key, as no classes are loaded by name"
    if re.fullmatch(_NOT_SUPPORTED, bare):
        return "no such key, as it is not supported"
    return None
