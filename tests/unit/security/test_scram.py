"""SCRAM, message by message. Numbers are those of the acceptance cases in the specification."""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.scram import (
    MECHANISMS,
    SHA_256,
    SHA_512,
    SaltedPasswords,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    credential_of_salted,
    fake_credential,
    is_password,
    make_credential,
    salted_password,
)
from ottla.security.steps import Challenge, Failure, Step, Success, Work

if TYPE_CHECKING:
    from collections.abc import Callable

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()


def made(mechanism: ScramMechanism, name: str = "user", password: str = "pencil") -> ScramServer:
    """A server that knows one user, with the salt and nonce of the RFC."""
    known = {name: make_credential(mechanism, password, SALT, 4096)}

    def credential_of(asked: str) -> ScramCredential:
        return known.get(asked) or fake_credential(b"secret", mechanism, asked, len(SALT), 4096)

    return ScramServer(mechanism, credential_of, SERVER_NONCE)


def client(mechanism: ScramMechanism, password: str = "pencil", name: str = "user") -> ScramClient:
    return ScramClient(mechanism, name, password, CLIENT_NONCE, SaltedPasswords())


def done(step: Step) -> Step:
    return step.finish() if isinstance(step, Work) else step


def data(step: Step) -> bytes:
    step = done(step)
    assert isinstance(step, Challenge | Success), step
    return step.data


def final_of(mechanism: ScramMechanism, server: ScramServer) -> bytes:
    """The right final message for this server, whose first answer is taken for it."""
    one = client(mechanism)
    return data(one.step(data(server.step(one.first()))))


RFC_7677 = (
    "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)
SAME_WITH_512 = (
    "gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYTxwnYPJQ==",
    "ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+5ZxXnJq199RVG2rR7N7Zw==",
)


@pytest.mark.parametrize(
    ("mechanism", "proof", "signature"),
    [
        pytest.param(SHA_256, *RFC_7677, id="case 22"),
        pytest.param(SHA_512, *SAME_WITH_512, id="case 23"),
    ],
)
def test_the_exchange_of_the_rfc_cases_22_and_23(
    mechanism: ScramMechanism, proof: str, signature: str
) -> None:
    server, one = made(mechanism), client(mechanism)
    assert one.first() == FIRST
    challenge = data(server.step(one.first()))
    assert challenge == (
        f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    )
    final = data(one.step(challenge))
    assert final == f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p={proof}".encode()
    success = server.step(final)
    assert success == Success("user", f"v={signature}".encode())
    assert one.step(data(success)) == Success("user")


def test_keys_of_the_rfc_case_22() -> None:
    credential = make_credential(SHA_256, "pencil", SALT, 4096)
    assert credential.stored_key == base64.b64decode("WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=")
    assert credential.server_key == base64.b64decode("wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=")
    salted = salted_password(SHA_256, "pencil", SALT, 4096)
    assert credential_of_salted(SHA_256, salted, SALT, 4096) == credential
    assert is_password(credential, "pencil")
    assert not is_password(credential, "pencil ")


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=list(MECHANISMS))
def test_a_wrong_password_fails(mechanism: ScramMechanism) -> None:
    server, one = made(mechanism), client(mechanism, "pen")
    final = data(one.step(data(server.step(one.first()))))
    assert server.step(final) == Failure("wrong password")
    assert isinstance(server.step(final), Failure)


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=list(MECHANISMS))
def test_an_unknown_user_fails_in_the_same_form(mechanism: ScramMechanism) -> None:
    """Case 26: as many messages, of the same size, as a wrong password takes."""
    answers = []
    for name in ("user", "abcd"):
        server = made(mechanism)
        one = client(mechanism, "wrong", name)
        challenge = data(server.step(one.first()))
        answers.append(challenge)
        failed = server.step(data(one.step(challenge)))
        assert isinstance(failed, Failure)
    assert len(answers[0]) == len(answers[1])


def test_a_made_up_salt_is_stable_case_28() -> None:
    def salt(name: str, mechanism: ScramMechanism = SHA_256, secret: bytes = b"secret") -> bytes:
        return fake_credential(secret, mechanism, name, 24, 8192).salt

    assert salt("alice") == salt("alice")
    assert len(salt("alice")) == 24
    assert len({salt("alice"), salt("bob"), salt("alice", SHA_512), salt("alice", secret=b"")}) == 4
    assert not is_password(fake_credential(b"secret", SHA_256, "alice", 24, 4096), "")


NONCE = CLIENT_NONCE + SERVER_NONCE
WRONG_NONCES: dict[str, Callable[[str], str]] = {
    "its own part alone": lambda whole: CLIENT_NONCE,
    "the server's part alone": lambda whole: SERVER_NONCE,
    "longer": lambda whole: whole + "x",
    "longer in front": lambda whole: "x" + whole,
    "shorter": lambda whole: whole[:-1],
    "another exchange's": lambda whole: CLIENT_NONCE + SERVER_NONCE[::-1],
}


@pytest.mark.parametrize("wrong", WRONG_NONCES)
def test_a_nonce_that_is_not_the_whole_one_is_refused_case_29(wrong: str) -> None:
    """With a proof that fits the message, so that the nonce alone is what is wrong."""
    server = made(SHA_256)
    challenge = data(server.step(FIRST)).decode()
    forged = WRONG_NONCES[wrong](NONCE)
    one = client(SHA_256)
    # The client signs what it sends: let it believe that the server had sent this nonce.
    salted = salted_password(SHA_256, "pencil", SALT, 4096)
    final = one._final(challenge, forged, salted)
    assert server.step(final.data) == Failure("nonce differs from the one sent")


def test_a_replayed_exchange_is_refused_case_30() -> None:
    first_server = made(SHA_256)
    recorded = final_of(SHA_256, first_server)
    assert isinstance(first_server.step(recorded), Success)
    known = make_credential(SHA_256, "pencil", SALT, 4096)
    second = ScramServer(SHA_256, lambda _: known, "another-nonce")
    second.step(FIRST)
    assert second.step(recorded) == Failure("nonce differs from the one sent")


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"n,a=admin,n=user,r=abc", "authorization id differs from the user"),
        (b"p=tls-unique,,n=user,r=abc", "channel binding is not supported"),
        (b"n,,m=ext,n=user,r=abc", "mandatory extension"),
        (b"n,,n=us=er,r=abc", "malformed user name"),
        (b"n,,n=us=2cer,r=abc", "malformed user name"),
        (b"n,,n=us\x07er,r=abc", "user name with control characters"),
        (b"n,,n=" + b"x" * 256 + b",r=abc", "user name longer than 255 characters"),
        (b"n,,n=user,r=", "malformed first message"),
        (b"n,,n=user,r=" + b"x" * 257, "malformed first message"),
        (b"n,,n=user,r=a b", "malformed first message"),
        (b"n,,n=,r=abc", "malformed first message"),
        (b"n,,n=user,r=abc,tokenauth=true", "delegation tokens are not supported"),
        (b"n,,n=user,r=abc,nonsense", "malformed first message"),
        (b"n=user,r=abc", "malformed first message"),
        (b"", "malformed first message"),
        (b"\xff", "message is not UTF-8"),
        (b"n,,n=user,r=abc,x=" + b"x" * 4096, "message longer than 4096 bytes"),
    ],
)
def test_first_messages_that_are_refused_case_31(first: bytes, reason: str) -> None:
    server = made(SHA_256)
    assert server.step(first) == Failure(reason)
    assert isinstance(server.step(FIRST), Failure), "a second try in the same exchange"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("c=biws", "c=eSws"), "channel binding differs from the first message"),
        (("c=biws", "c=biwsYQ=="), "channel binding differs from the first message"),
        (("c=biws", "c=bi"), "malformed channel binding"),
        (("c=biws", "m=x,c=biws"), "mandatory extension"),
        ((",p=", ",p=AAAA"), "malformed proof"),
        ((",p=", ",q="), "malformed final message"),
    ],
)
def test_final_messages_that_are_refused_case_31(change: tuple[str, str], reason: str) -> None:
    server = made(SHA_256)
    final = final_of(SHA_256, server).decode().replace(*change)
    assert server.step(final.encode()) == Failure(reason)


@pytest.mark.parametrize("header", [b"n,,", b"y,,", b"n,a=user,"])
def test_headers_that_are_accepted(header: bytes) -> None:
    server = made(SHA_256)
    bare = f"n=user,r={CLIENT_NONCE},ext=1".encode()
    challenge = data(server.step(header + bare))
    one = client(SHA_256)
    one._bare = bare.decode()
    salted = salted_password(SHA_256, "pencil", SALT, 4096)
    encoded = base64.b64encode(header).decode()
    # Signed by hand: the own client always sends `n,,`.
    from ottla.security import scram

    bare_final = f"c={encoded},r={NONCE}"
    signed = f"{one._bare},{challenge.decode()},{bare_final}".encode()
    key = scram._hmac(SHA_256, salted, b"Client Key")
    proof = scram._xor(key, scram._hmac(SHA_256, scram._hash(SHA_256, key), signed))
    final = f"{bare_final},p={base64.b64encode(proof).decode()}"
    assert isinstance(server.step(final.encode()), Success)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (f"r={SERVER_NONCE},s=W22Z,i=4096", "the server's nonce does not extend ours"),
        (f"r={CLIENT_NONCE},s=W22Z,i=4096", "the server's nonce does not extend ours"),
        (f"r={NONCE},s=W22Z,i=1", "the server asks for 1 iterations; allowed are 4096 to 1000000"),
        (
            f"r={NONCE},s=W22Z,i=1000000000",
            "the server asks for 1000000000 iterations; allowed are 4096 to 1000000",
        ),
        (f"r={NONCE},s=,i=4096", "malformed first message of the server"),
        (f"r={NONCE},s=W22Z,i=99999999999999", "malformed first message of the server"),
        (f"m=x,r={NONCE},s=W22Z,i=4096", "mandatory extension"),
        ("", "malformed first message of the server"),
    ],
)
def test_a_false_server_is_refused_case_34(answer: str, reason: str) -> None:
    one = client(SHA_256)
    one.first()
    assert one.step(answer.encode()) == Failure(reason)
    assert isinstance(one.step(f"r={NONCE},s=W22Z,i=4096".encode()), Failure)


@pytest.mark.parametrize(
    ("signature", "reason"),
    [
        (
            f"v={base64.b64encode(bytes(32)).decode()}",
            "the server does not know the password: it may be a false one",
        ),
        ("v=AAAA", "the server does not know the password: it may be a false one"),
        ("e=invalid-proof", "the server says 'invalid-proof'"),
        ("", "malformed final message of the server"),
    ],
)
def test_a_server_that_does_not_prove_itself_is_refused_case_34(
    signature: str, reason: str
) -> None:
    server, one = made(SHA_256), client(SHA_256)
    final = data(one.step(data(server.step(one.first()))))
    assert isinstance(server.step(final), Success)
    assert one.step(signature.encode()) == Failure(reason)


names = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=255)


@given(name=names, password=st.text(min_size=1, max_size=64))
def test_any_name_and_password_log_in(name: str, password: str) -> None:
    """`a,b=c` and the like included (case 44); one round of hashing is enough for this."""
    salted = salted_password(SHA_256, password, SALT, 1)
    credential = credential_of_salted(SHA_256, salted, SALT, 4096)
    server = ScramServer(SHA_256, lambda _: credential, SERVER_NONCE)
    cache = SaltedPasswords()
    cache.keep(SHA_256, SALT, 4096, salted)
    one = ScramClient(SHA_256, name, password, CLIENT_NONCE, cache)
    success = server.step(data(one.step(data(server.step(one.first())))))
    assert isinstance(success, Success)
    assert success.name == name
    assert isinstance(one.step(success.data), Success)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_get_an_answer(first: bytes, second: bytes) -> None:
    server = made(SHA_256)
    for token in (first, second):
        assert isinstance(server.step(token), Challenge | Failure)
    one = client(SHA_256)
    for token in (first, second):
        assert isinstance(one.step(token), Failure)


def test_the_second_login_does_not_hash() -> None:
    cache = SaltedPasswords()
    one = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE, cache)
    challenge = data(made(SHA_256).step(one.first()))
    work = one.step(challenge)
    assert isinstance(work, Work)
    final = work.finish()
    again = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE, cache)
    assert again.step(challenge) == final
    for number in range(20):
        cache.keep(SHA_256, bytes([number]), 4096, b"")
    assert len(cache._known) == SaltedPasswords.LIMIT


def test_secrets_are_neither_printed_nor_pickled() -> None:
    credential = make_credential(SHA_256, "pencil", SALT, 4096)
    shown = repr(credential) + repr(Challenge(b"canary")) + repr(Success("user", b"canary"))
    for secret in (credential.stored_key, credential.server_key, credential.salt, b"canary"):
        assert repr(secret)[2:-1] not in shown
    for value in (credential, SaltedPasswords()):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(value)


@pytest.mark.parametrize("password", ["another", "pencil"])
def test_a_credential_that_changes_within_the_exchange_is_refused(password: str) -> None:
    """Its connections are closed at the change, but this one had no session yet (or anew)."""
    known = [make_credential(SHA_256, "pencil", SALT, 4096)]
    server = ScramServer(SHA_256, lambda _: known[-1], SERVER_NONCE)
    final = final_of(SHA_256, server)
    known.append(make_credential(SHA_256, password, b"another salt", 4096))
    assert server.step(final) == Failure("credential changed within the exchange")
