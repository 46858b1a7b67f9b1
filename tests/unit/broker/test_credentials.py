"""Credentials of a listener: stored, made up, configured, and those of nodes (cases 26 and 28)."""

from __future__ import annotations

from ottla.broker.access.credentials import NODE_USER, Credentials, made_credentials
from ottla.metadata.image import MetadataImage
from ottla.security.scram import MECHANISMS, SHA_256, SHA_512, is_password
from tests.support.doors import stored

IMAGE = MetadataImage(
    scram={
        name: {one: stored(name, "secret", one)}
        for name, one in (
            ("alice", "SCRAM-SHA-256"),
            ("bob", "SCRAM-SHA-256"),
            ("carol", "SCRAM-SHA-512"),
        )
    }
)


def credentials_of(image: MetadataImage) -> Credentials:
    return Credentials(lambda: image, b"secret", made_credentials({NODE_USER: "node"}))


def test_what_is_stored_is_found() -> None:
    credentials = credentials_of(IMAGE)
    found = credentials.scram(SHA_256, "alice", among_nodes=False)
    assert found.is_known
    assert is_password(found, "secret")
    assert not credentials.scram(SHA_512, "alice", among_nodes=False).is_known


def test_plain_takes_the_credential_that_there_is() -> None:
    credentials = credentials_of(IMAGE)
    for name, mechanism in (("alice", SHA_256), ("carol", SHA_512)):
        found = credentials.plain(name, among_nodes=False, configured={})
        assert found is not None
        assert found.mechanism is mechanism
    assert credentials.plain("nobody", among_nodes=False, configured={}) is None


def test_case_28_a_made_up_one_stays_the_same() -> None:
    first = credentials_of(IMAGE).scram(SHA_256, "nobody", among_nodes=False)
    again = credentials_of(IMAGE).scram(SHA_256, "nobody", among_nodes=False)
    other = credentials_of(IMAGE).scram(SHA_256, "someone", among_nodes=False)
    assert first.salt == again.salt != other.salt


def test_case_45_the_users_of_nodes_are_known_among_nodes_alone() -> None:
    credentials = credentials_of(IMAGE)
    for one in MECHANISMS.values():
        assert credentials.scram(one, NODE_USER, among_nodes=True).is_known
        assert not credentials.scram(one, NODE_USER, among_nodes=False).is_known
    assert credentials.plain(NODE_USER, among_nodes=True, configured={}) is not None
    assert credentials.plain(NODE_USER, among_nodes=False, configured={}) is None
    assert credentials.plain("__other", among_nodes=True, configured={}) is None


def test_a_configured_password_is_not_the_nodes() -> None:
    """Fault: the listener's own users were looked at first, whatever their names."""
    configured = {"__node": made_credentials({"__node": "x"})["__node"]["SCRAM-SHA-512"]}
    for among_nodes in (True, False):
        found = credentials_of(IMAGE).plain(
            NODE_USER, among_nodes=among_nodes, configured=configured
        )
        assert found is None or not is_password(found, "x")


def test_users_of_a_listener_come_first() -> None:
    configured = {"alice": made_credentials({"alice": "from-jaas"})["alice"]["SCRAM-SHA-512"]}
    found = credentials_of(IMAGE).plain("alice", among_nodes=False, configured=configured)
    assert found is not None
    assert is_password(found, "from-jaas")
