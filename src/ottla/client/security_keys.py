"""Every security key of Kafka's and librdkafka's clients: what it sets here, or why it does not.

A key has an effect (`NAMES`, `OTHERS`), has none for a reason (`NO_EFFECT`), or is refused with a
sentence (`REFUSED`, and what would load code). Others are unknown, and refused with the nearest
name. `docs/reference/client-security.md` shows the same keys.
"""

from __future__ import annotations

from typing import Final

PREFIXES: Final = ("ssl.", "sasl.", "security.")

NAMES: Final = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_username",
    "sasl.password": "sasl_password",
    "ssl.truststore.location": "ssl_ca",
    "ssl.truststore.certificates": "ssl_ca",
    "ssl.truststore.password": "ssl_ca_password",
    "ssl.ca.location": "ssl_ca",
    "ssl.ca.pem": "ssl_ca",
    "ssl.keystore.location": "ssl_certificate",
    "ssl.keystore.certificate.chain": "ssl_certificate",
    "ssl.keystore.key": "ssl_key",
    "ssl.keystore.password": "ssl_key_password",
    "ssl.certificate.location": "ssl_certificate",
    "ssl.certificate.pem": "ssl_certificate",
    "ssl.key.location": "ssl_key",
    "ssl.key.pem": "ssl_key",
    "ssl.key.password": "ssl_key_password",
    "ssl.crl.location": "ssl_crl",
    "ssl.enabled.protocols": "ssl_enabled_protocols",
    "ssl.cipher.suites": "ssl_cipher_suites",
    "sasl.oauthbearer.token.endpoint.url": "sasl_oauthbearer_token_endpoint_url",
    "sasl.oauthbearer.client.id": "sasl_oauthbearer_client_id",
    "sasl.oauthbearer.client.secret": "sasl_oauthbearer_client_secret",
    "sasl.oauthbearer.client.credentials.client.id": "sasl_oauthbearer_client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl_oauthbearer_client_secret",
    "sasl.oauthbearer.scope": "sasl_oauthbearer_scope",
}
"""The setting of `Security` that each key gives, under all of its names."""

STORE_TYPES: Final = ("ssl.keystore.type", "ssl.truststore.type")
OTHERS: Final = (
    "sasl.jaas.config",
    "ssl.endpoint.identification.algorithm",
    *STORE_TYPES,
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.grant.type",
    "sasl.oauthbearer.header.urlencode",
)
"""Keys with an effect that is not a single setting."""

ONLY: Final = {
    "ssl.endpoint.identification.algorithm": ("https", "none", ""),
    "ssl.keystore.type": ("pem", "pkcs12", "jks", ""),
    "ssl.truststore.type": ("pem", "pkcs12", "jks", ""),
    "sasl.oauthbearer.method": ("oidc", "default", ""),
    "sasl.oauthbearer.grant.type": ("client_credentials", ""),
    "sasl.oauthbearer.header.urlencode": ("false", ""),
    "enable.ssl.certificate.verification": ("true", ""),
    "enable.sasl.oauthbearer.unsecure.jwt": ("false", ""),
}
"""Values that can be had, in lower case; others are refused."""

_JVM: Final = "it names a part of a JVM; OpenSSL is used here"
_REFRESH: Final = (
    "a token is asked for after 80 % of its life, and must come within the connect timeout"
)
_KERBEROS: Final = "only GSSAPI uses it, which is not among the mechanisms"
_BROKERS_WORK: Final = "the broker checks tokens; the client passes them on"

NO_EFFECT: Final = {
    "ssl.protocol": "ssl.enabled.protocols decides",
    "ssl.provider": _JVM,
    "ssl.keymanager.algorithm": _JVM,
    "ssl.trustmanager.algorithm": _JVM,
    "ssl.secure.random.implementation": _JVM,
    "sasl.login.connect.timeout.ms": _REFRESH,
    "sasl.login.read.timeout.ms": _REFRESH,
    "sasl.login.retry.backoff.ms": _REFRESH,
    "sasl.login.retry.backoff.max.ms": _REFRESH,
    "sasl.login.refresh.buffer.seconds": _REFRESH,
    "sasl.login.refresh.min.period.seconds": _REFRESH,
    "sasl.login.refresh.window.factor": _REFRESH,
    "sasl.login.refresh.window.jitter": _REFRESH,
    "sasl.kerberos.kinit.cmd": _KERBEROS,
    "sasl.kerberos.keytab": _KERBEROS,
    "sasl.kerberos.principal": _KERBEROS,
    "sasl.kerberos.service.name": _KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": _KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": _KERBEROS,
    "sasl.oauthbearer.scope.claim.name": _BROKERS_WORK,
    "sasl.oauthbearer.sub.claim.name": _BROKERS_WORK,
    "sasl.oauthbearer.clock.skew.seconds": _BROKERS_WORK,
    "sasl.oauthbearer.expected.audience": _BROKERS_WORK,
    "sasl.oauthbearer.expected.issuer": _BROKERS_WORK,
    "sasl.oauthbearer.jwks.endpoint.url": _BROKERS_WORK,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _BROKERS_WORK,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _BROKERS_WORK,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _BROKERS_WORK,
}
"""Keys that are taken and change nothing, and why."""

_OPENSSL_CHOOSES: Final = "Python cannot choose it; leave it out, OpenSSL offers what is safe"
_TOKEN: Final = "give a token endpoint with a client id and a client secret, or token= in Python"

REFUSED: Final = {
    "ssl.curves.list": _OPENSSL_CHOOSES,
    "ssl.sigalgs.list": _OPENSSL_CHOOSES,
    "ssl.certificate.verify_cb": "give ssl_context in Python",
    "ssl.ca.certificate.stores": "name the CA by ssl.ca.location",
    "ssl.providers": "no code is loaded by name",
    "sasl.oauthbearer.config": _TOKEN,
    "sasl.oauthbearer.extensions": "extensions are not sent; " + _TOKEN,
}
"""Keys that cannot be obeyed, and what to do instead."""

SECRET_KEYS: Final = frozenset(
    {
        *("sasl.password", "sasl.jaas.config", "ssl.keystore.password", "ssl.truststore.password"),
        *("ssl.key.password", "ssl.keystore.key", "ssl.key.pem", "sasl.oauthbearer.client.secret"),
        "sasl.oauthbearer.client.credentials.client.secret",
    }
)
"""Keys whose values are secret."""

KNOWN: Final = frozenset({*NAMES, *OTHERS, *NO_EFFECT, *REFUSED})
"""All keys that mean something here."""


def refusal(key: str) -> str | None:
    """Why a key that is known by its form or name is refused; None if it is not."""
    if key in REFUSED:
        return REFUSED[key]
    if key == "sasl.login.callback.handler.class":
        return "no classes are loaded; leave it out, sasl.oauthbearer.token.endpoint.url is enough"
    is_plug_in = key.endswith(".class") or ".callback.handler" in key
    if is_plug_in or key.startswith("ssl.engine.") or key == "security.providers":
        return "no classes are loaded"
    if key.startswith("sasl.oauthbearer.assertion."):
        return "only client credentials are sent to a token endpoint; " + _TOKEN
    return None
