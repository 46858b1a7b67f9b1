"""Nothing secret is printed: what `redact` takes out, and that nothing prints around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.cluster.bootstrap import BadBootstrap, parse_bootstrap
from ottla.client.security import Security
from ottla.offsets import SyncPostgresOffsetStore
from ottla.offsets.urls import store_from_url
from ottla.redaction import is_secret, printable, redact
from ottla.spark.options import parse_source
from ottla.streams import ConnectOptions, KafkaOptions, RedisOptions, connect
from ottla.streams.errors import StreamError, UrlError
from ottla.streams.url import parse

PLANTED = "pl4nted-s3cret"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "postgresql://me:S@host:5432/db?sslmode=disable",
            "postgresql://me:***@host:5432/db?sslmode=disable",
        ),
        ("redis://:a@S/b@host:1/0/key is down", "redis://:***@host:1/0/key is down"),
        ("bootstrap 'me:S@127.0.0.1:1' is wrong", "bootstrap 'me:***@127.0.0.1:1' is wrong"),
        ("host=h password=S dbname=x", "host=h password=*** dbname=x"),
        ("host=h password='S S' dbname=x", "host=h password=*** dbname=x"),
        ("{'sasl.password': 'S', 'a': 1}", "{'sasl.password': ***, 'a': 1}"),
        ('sasl.jaas.config=PlainLoginModule required password="S";', "sasl.jaas.config=***"),
        ("AWS_SECRET_ACCESS_KEY=S", "AWS_SECRET_ACCESS_KEY=***"),
        (
            "?access_key_id=AK&secret_access_key=S&x=1",
            "?access_key_id=AK&secret_access_key=***&x=1",
        ),
        ("ssl.key.password: S", "ssl.key.password: ***"),
        ("redis://u:S S@host/a is down", "redis://u:***@host/a is down"),
        ("redis://u:S/S?S@host/a is down", "redis://u:***@host/a is down"),
        ("host=h password='S", "host=h password=***"),
        # What is no secret stays readable.
        ("redis://host:6379 is down, ask me@host", "redis://host:6379 is down, ask me@host"),
        ("kafka://host:9092/topic", "kafka://host:9092/topic"),
        ("the password is wrong for user 'me'", "the password is wrong for user 'me'"),
        ("at 12:30 write to me@host.example", "at 12:30 write to me@host.example"),
        ("ssl.keystore.location=/etc/key.pem", "ssl.keystore.location=/etc/key.pem"),
        ("sasl.password.file=/run/secrets/x", "sasl.password.file=/run/secrets/x"),
    ],
)
def test_what_is_taken_out(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(redact(text)) == redact(text)


@given(st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="'\"@"), min_size=8))
def test_no_password_of_a_url_is_left(password: str) -> None:
    shown = redact(f"cannot reach postgresql://me:{password}@host/db, try again")
    assert shown == "cannot reach postgresql://me:***@host/db, try again"


def test_names_of_secrets_and_of_their_places() -> None:
    assert is_secret("sasl.password")
    assert not is_secret("sasl.password.file")
    assert not is_secret("ssl.truststore.location")


def test_no_repr_shows_a_secret() -> None:
    shown = [
        parse(f"redis://me:{PLANTED}@host/a"),
        ConnectOptions(
            kafka=KafkaOptions(
                security=Security("SASL_SSL", "PLAIN", "me", PLANTED),
                extra={"ssl.key.password": PLANTED},
            ),
            redis=RedisOptions(extra={"password": PLANTED}),
        ),
        Security("SASL_SSL", "PLAIN", "me", PLANTED),
        parse_source(
            {
                "kafka.bootstrap.servers": "h:9092",
                "subscribe": "a",
                "kafka.sasl.password": PLANTED,
                "offsetStore": f"postgresql://me:{PLANTED}@host/db",
                "tierUrl": "s3://bucket/x",
                "tier.secret.access.key": PLANTED,
                "rsm.config.secret.access.key": PLANTED,
            },
            "stream",
        ),
        parse_source(
            {"store": "redis", "path": f"redis://:{PLANTED}@host", "subscribe": "a"}, "stream"
        ),
    ]
    for one in shown:
        assert PLANTED not in repr(one)
        assert PLANTED not in f"{one!r:s}"


@pytest.mark.parametrize("mark", ["/", "?", "#", "@", " "])
def test_a_password_with_a_character_of_urls_is_not_printed(mark: str) -> None:
    raw = f"{PLANTED[:6]}{mark}{PLANTED[6:]}"
    with pytest.raises(ValueError, match="conninfo") as refused:
        SyncPostgresOffsetStore(f"postgresql://me:{raw}@127.0.0.1:1/x")
    told = str(refused.value)
    with pytest.raises(ValueError, match=r"characters|NAME=VALUE") as refused:
        store_from_url(f"postgresql://me:{raw}@127.0.0.1:1/x")
    told += str(refused.value)
    for url in (f"redis://me:{raw}@127.0.0.1:1/x", f"redis://me:{raw}@127.0.0.1:x/x"):
        try:
            connect(url)
        except StreamError as error:
            told += str(error)
    for bootstrap in (
        f"me:{raw}@127.0.0.1:1",
        f"me:{raw}@127.0.0.1",
        [f"{raw}@h:1"],
        f"me:,{raw}@h",
    ):
        with pytest.raises(BadBootstrap) as bad:
            parse_bootstrap(bootstrap)
        told += str(bad.value)
    assert PLANTED[6:] not in told, told


@pytest.mark.parametrize("port", ["x", "0", "65536", "99999"])
def test_a_port_that_is_none_is_told(port: str) -> None:
    with pytest.raises(UrlError, match="port of a Redis URL"):
        connect(f"redis://me:{PLANTED}@127.0.0.1:{port}/x")


@pytest.mark.parametrize("host", ["a..b", "a" * 300, "x\0y", "a\ud800"])
def test_a_host_that_cannot_be_is_told(host: str) -> None:
    with pytest.raises(BadBootstrap, match="invalid host name"):
        parse_bootstrap(f"{host}:9")


def test_case_81_what_clients_say_stays_on_one_line() -> None:
    assert printable("orders") == "orders"
    assert printable("a\nb\r\x1b[2J\u2028") == r"a\nb\r\x1b[2J\u2028"
    assert printable("\ud800") == r"\ud800"
    assert printable("x" * 300) == "x" * 200 + "..."
    assert printable("ä日本") == "ä日本"
