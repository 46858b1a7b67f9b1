"""What locks cost: TLS, logins, ACLs, quotas, and strangers at the door.

    python -m benchmarks.security [--quick] [--only=TEXT]

The same client with the same certificates drives our broker and Apache Kafka, both with a TLS and a
plaintext listener. Rows with a fixed limit show that limit as the peer. `--only` runs one part:
load, floor, handshakes, turns, acls, start, quotas, plain, strangers.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks._harness import Row, part, report, skipped
from benchmarks._ottla import OttlaProcess, WatchedOttla, release_source
from benchmarks._peers import why_no_jvm
from benchmarks._tls_floor import sending_costs
from benchmarks.broker import AS_KAFKA, Load, consume, create_topic, produce
from ottla import Admin
from ottla.security.certificates import Authority
from tests.support.jvm import ApacheKafka
from tests.support.ports import free_ports
from tests.support.raw_client import RawClient, batch, produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

QUICK: Final = "--quick" in sys.argv
ROUNDS: Final = 3 if QUICK else 7
RECORDS: Final = 50_000 if QUICK else 200_000
HANDSHAKES: Final = 300 if QUICK else 1_500
ACLS: Final = 1_000
MANY_ACLS: Final = 100_000  # as many as there may be
ACLS_A_REQUEST: Final = 10_000
STARTS: Final = 3 if QUICK else 5
REQUESTS: Final = 2_000 if QUICK else 10_000
STRANGERS_PER_SECOND: Final = 10_000 / 60
STRANGE_SECONDS: Final = 5 if QUICK else 10
LISTENERS: Final = "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0"
PROTOCOLS: Final = "TLS:SSL,PLAINTEXT:PLAINTEXT"
TLS_CPU_LIMIT: Final = 2.2
ACL_LIMIT: Final = 1.03
QUOTA_LIMIT: Final = 1.03
STRANGER_LIMIT: Final = 2.0
TURN_LIMIT_SECONDS: Final = 0.020
START_LIMIT_SECONDS: Final = 1.0
BEFORE_SECURITY: Final = "32b97d64~1"  # the commit before the first of the security room
PLAIN_LIMIT: Final = 1.02


def main() -> None:
    rows = part("load", load_rows)
    rows += part("floor", floor_rows)
    rows += part("handshakes", handshake_rows)
    rows += part("turns", turn_rows)
    rows += part("acls", acl_rows)
    rows += part("start", start_rows)
    rows += part("quotas", quota_rows)
    rows += part("plain", plain_rows)
    rows += part("strangers", stranger_rows)
    report("security: what locks cost", rows, ("confluent-kafka", "cryptography", "uvloop"))


# -- the places -----------------------------------------------------------------------------------


class Certificates:
    """A CA in a directory, and one certificate that both brokers show."""

    def __init__(self, directory: Path) -> None:
        authority = Authority.make()
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(authority.issued.chain)
        self.store = directory / "server.pem"
        self.store.write_bytes(authority.server(["localhost", "127.0.0.1"]).store)
        self.store.chmod(0o600)

    @property
    def client(self) -> dict[str, str]:
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.ca)}


class TlsKafka(ApacheKafka):
    """Apache Kafka with a TLS listener beside its plaintext one."""

    tls: str
    store: Path

    def _configure(self, directory: Path) -> None:
        super()._configure(directory)
        (port,) = free_ports(1)
        self.tls = f"127.0.0.1:{port}"
        self.config |= {
            "listeners": f"{self.config['listeners']},TLS://{self.tls}",
            "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL"),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.store),
        }
        lines = [f"{key}={value}\n" for key, value in self.config.items()]
        self.config_file.write_text("".join(lines))


@contextmanager
def places() -> Iterator[tuple[Certificates, OttlaProcess, TlsKafka | None]]:
    """Both brokers, up together; Kafka where there is a JVM."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-bench-")))
        certificates = Certificates(directory)
        ours = stack.enter_context(OttlaProcess(our_config(certificates)))
        kafka: TlsKafka | None = None
        missing = why_no_jvm()
        if missing is None:
            kafka = TlsKafka()
            kafka.store = certificates.store
            stack.enter_context(kafka)
        else:
            skipped("Apache Kafka", missing)
        yield certificates, ours, kafka


def our_config(certificates: Certificates) -> dict[str, str]:
    return {
        "listeners": LISTENERS,
        "listener.security.protocol.map": PROTOCOLS,
        "ssl.keystore.location": str(certificates.store),
        **AS_KAFKA,
    }


# -- load -----------------------------------------------------------------------------------------


def load_rows() -> list[Row]:
    with places() as (certificates, ours, kafka):
        _, tls = ours.addresses
        sides: dict[str, tuple[Any, dict[str, str]]] = {
            "tls": (ours, {"bootstrap.servers": tls, **certificates.client}),
            "plain": (ours, {}),
        }
        if kafka is not None:
            sides["kafka"] = kafka, {"bootstrap.servers": kafka.tls, **certificates.client}
        produced: dict[str, list[Load]] = {name: [] for name in sides}
        consumed: dict[str, list[Load]] = {name: [] for name in sides}
        for turn in range(-1, ROUNDS):
            for name, (broker, client) in sides.items():
                topic = f"{name}-{turn}"
                wrote = produce(broker, topic, RECORDS, client)
                read = consume(broker, topic, RECORDS, client)
                if turn >= 0:  # the first round warms up
                    produced[name].append(wrote)
                    consumed[name].append(read)
    rows = []
    for what, found in (("produce", produced), ("consume", consumed)):
        if kafka is not None:
            rows.append(_rates(f"TLS {what} 1 KiB, peer Apache Kafka with TLS", found, "kafka"))
            rows.append(
                _ratio(
                    f"TLS {what}, CPU of the broker for a record, peer Apache Kafka with TLS",
                    [load.cpu_us_per_record for load in found["tls"]],
                    [load.cpu_us_per_record for load in found["kafka"]],
                    1.0,
                    "us",
                )
            )
        rows.append(
            _ratio(
                f"TLS {what}, CPU of the broker for a record, against our plaintext",
                [load.cpu_us_per_record for load in found["tls"]],
                [load.cpu_us_per_record for load in found["plain"]],
                TLS_CPU_LIMIT,
                "us",
            )
        )
    return rows


def floor_rows() -> list[Row]:
    """What TLS costs at least with Python's `ssl`, in CPU of one KiB: no broker, no disk.

    Both sides send the same memory over loopback in the same pieces; one encrypts it first. The
    ratio is what consuming would cost if all else were free, and so were plaintext.
    """
    plain: list[float] = []
    tls: list[float] = []
    alone: list[float] = []
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        certificates = Certificates(Path(directory))
        for turn in range(-1, ROUNDS):
            found = sending_costs(certificates.store, certificates.ca)
            if turn >= 0:
                for costs, cost in zip((plain, tls, alone), found, strict=True):
                    costs.append(cost)
    print(f"  encrypting alone {statistics.median(alone):.2f} us a KiB")
    row = _ratio(
        "TLS sent from memory, CPU of a KiB, against the same in plain", tls, plain, 1, "us"
    )
    return [replace(row, target=None)]


# -- handshakes -----------------------------------------------------------------------------------


def handshake_rows() -> list[Row]:
    """Whole handshakes, one after the other in four threads, without resumption."""
    with places() as (certificates, ours, kafka):
        tls = ours.addresses[1]
        found: dict[str, list[float]] = {"tls": [], "kafka": []}
        cpu = []
        for turn in range(-1, ROUNDS):
            before = ours.cpu_seconds()
            rate = handshakes(tls, certificates.ca)
            used = (ours.cpu_seconds() - before) / HANDSHAKES * 1000
            theirs = handshakes(kafka.tls, certificates.ca) if kafka is not None else 1.0
            if turn >= 0:
                found["tls"].append(rate)
                found["kafka"].append(theirs)
                cpu.append(used)
    print(f"  CPU of a handshake {statistics.median(cpu):.2f} ms ({min(cpu):.2f}-{max(cpu):.2f})")
    if kafka is None:
        return []
    ratios = [own / peer for own, peer in zip(found["tls"], found["kafka"], strict=True)]
    own, peer = (statistics.median(found[name]) for name in ("tls", "kafka"))
    return [
        Row(
            "TLS handshakes, peer Apache Kafka",
            f"{own:.0f}/s",
            f"{peer:.0f}/s",
            own / peer,
            (min(ratios), max(ratios)),
            1.0,
        )
    ]


def handshakes(address: str, ca: Path) -> float:
    host, _, port = address.rpartition(":")

    def some(count: int) -> None:
        for _ in range(count):
            context = ssl.create_default_context(cafile=str(ca))
            with (
                socket.create_connection((host, int(port))) as plain,
                context.wrap_socket(plain, server_hostname="localhost"),
            ):
                pass

    threads = [threading.Thread(target=some, args=(HANDSHAKES // 4,)) for _ in range(4)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return HANDSHAKES / (time.perf_counter() - began)


def turn_rows() -> list[Row]:
    """The longest turn of the event loop while clients shake hands, four at a time."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        certificates = Certificates(Path(directory))
        turns = []
        for _ in range(ROUNDS):
            with WatchedOttla(our_config(certificates)) as broker:
                handshakes(broker.addresses[1], certificates.ca)
                broker.stop()
                seconds, where = broker.longest_turn()
            turns.append(seconds)
            if seconds > TURN_LIMIT_SECONDS:
                print(where)
    what = f"longest turn of the loop during {HANDSHAKES:,} handshakes"
    return [_limit(what, turns, TURN_LIMIT_SECONDS)]


# -- rights ---------------------------------------------------------------------------------------


def acl_rows() -> list[Row]:
    """A produce request of one record, with and without an authorizer that has many ACLs."""
    rights = {
        "authorizer.class.name": "standard",
        "allow.everyone.if.no.acl.found": "true",
        **AS_KAFKA,
    }
    with OttlaProcess(rights) as checked, OttlaProcess(AS_KAFKA) as free:
        asyncio.run(fill_acls(checked.bootstrap, ACLS))
        costs = request_costs(checked, free)
    what = f"a produce request with {ACLS:,} ACLs, CPU against no authorizer"
    return [_ratio(what, costs[0], costs[1], ACL_LIMIT, "us")]


def start_rows() -> list[Row]:
    """How much later a broker with as many ACLs as there may be is ready, against one with none."""
    rights = {
        "authorizer.class.name": "standard",
        "allow.everyone.if.no.acl.found": "true",
        **AS_KAFKA,
    }
    with OttlaProcess(rights) as full, OttlaProcess(rights) as empty:
        asyncio.run(fill_acls(full.bootstrap, MANY_ACLS))
        later = []
        for _ in range(STARTS):
            for broker in (full, empty):
                broker.stop()
                broker.start()
            later.append(full.seconds_to_ready - empty.seconds_to_ready)
    what = f"start with {MANY_ACLS:,} ACLs, later than with none"
    return [_limit(what, later, START_LIMIT_SECONDS)]


def quota_rows() -> list[Row]:
    """The same with quotas of every kind for every user, none of which is reached."""
    with OttlaProcess(AS_KAFKA) as metered, OttlaProcess(AS_KAFKA) as free:
        asyncio.run(set_quotas(metered.bootstrap))
        costs = request_costs(metered, free)
    what = "a produce request with quotas that are not reached, CPU against none"
    return [_ratio(what, costs[0], costs[1], QUOTA_LIMIT, "us")]


def plain_rows() -> list[Row]:
    """A broker without any of this, against the same before there was any."""
    found: dict[str, list[tuple[float, float]]] = {"now": [], "before": []}
    with release_source(BEFORE_SECURITY) as before:
        for turn in range(-1, 2 * ROUNDS):
            for name, source in (("now", None), ("before", before)):
                with OttlaProcess(source=source) as broker:
                    cpu = broker.cpu_seconds() * 1000
                    time.sleep(0.5)
                    if turn >= 0:
                        found[name].append((cpu, broker.rss_bytes() / (1 << 20)))
    rows = []
    for index, what, unit in ((0, "CPU until it is ready", "ms"), (1, "idle memory", "MiB")):
        now, before_ = ([one[index] for one in found[name]] for name in ("now", "before"))
        text = f"a PLAINTEXT broker: {what}, against before security"
        rows.append(_ratio(text, now, before_, PLAIN_LIMIT, unit))
    return rows


async def set_quotas(bootstrap: str) -> None:
    values = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}
    async with Admin(bootstrap) as admin:
        await admin.alter_quotas({"user": None}, values)


def request_costs(*brokers: OttlaProcess) -> tuple[list[float], ...]:
    """CPU microseconds of a produce request of one record, of each broker in turn."""
    clients = [RawClient(broker.bootstrap) for broker in brokers]
    request = produce_request("allowed", {0: bytes(batch(b"x" * 100))})
    for broker in brokers:
        create_topic(broker.bootstrap, "allowed", 1)
    costs: tuple[list[float], ...] = tuple([] for _ in brokers)
    for turn in range(-1, 2 * ROUNDS):
        for index, (broker, client) in enumerate(zip(brokers, clients, strict=True)):
            before = broker.cpu_seconds()
            for _ in range(REQUESTS):
                client.ask("produce", 9, request)
            if turn >= 0:
                costs[index].append((broker.cpu_seconds() - before) / REQUESTS * 1e6)
    for client in clients:
        client.close()
    return costs


async def fill_acls(bootstrap: str, count: int) -> None:
    """For the users of other topics; and for the one that is produced to."""
    from ottla import Acl

    texts = [f"allow user{number} write topic:t{number}" for number in range(count - 1)]
    acls = [acl for text in texts for acl in Acl.parse(text)]
    acls += Acl.parse("allow ANONYMOUS write topic:allowed")
    async with Admin(bootstrap) as admin:
        for at in range(0, len(acls), ACLS_A_REQUEST):
            await admin.create_acls(acls[at : at + ACLS_A_REQUEST])


# -- strangers ------------------------------------------------------------------------------------


def stranger_rows() -> list[Row]:
    """The 99th percentile of a producer while others fail to log in, against the same alone."""
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        "ottla.audit.file": "/dev/null",
        **AS_KAFKA,
    }
    alone, beside = [], []
    with OttlaProcess(config) as broker:
        sasl, plain = broker.addresses
        create_topic(plain, "latency", 1)
        with RawClient(plain) as client:
            latency(client, 1)
            for _ in range(ROUNDS):
                alone.append(latency(client, STRANGE_SECONDS))
                with strangers(sasl) as tried:
                    while tried() < STRANGERS_PER_SECOND:  # their process has to start
                        time.sleep(0.05)
                    before = tried()
                    beside.append(latency(client, STRANGE_SECONDS))
                    came = tried() - before
                print(f"  {came / STRANGE_SECONDS * 60:.0f} strangers a minute")
    what = "produce p99 beside 10,000 failing logins a minute, against alone"
    return [_ratio(what, beside, alone, STRANGER_LIMIT, "ms")]


def latency(client: RawClient, seconds: float) -> float:
    """Milliseconds; a request every two."""
    request = produce_request("latency", {0: bytes(batch(b"x" * 100))})
    seen = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        client.ask("produce", 9, request)
        seen.append((time.perf_counter() - began) * 1000)
        time.sleep(0.002)
    return statistics.quantiles(seen, n=100)[98]


@contextmanager
def strangers(address: str) -> Iterator[Any]:
    from benchmarks._strangers import Strangers

    crowd = Strangers(address, STRANGERS_PER_SECOND)
    crowd.start()
    try:
        yield crowd.tried
    finally:
        crowd.stop()


# -- rows -----------------------------------------------------------------------------------------


def _rates(what: str, found: Mapping[str, Sequence[Load]], peer: str) -> Row:
    ours = [load.records_per_second for load in found["tls"]]
    theirs = [load.records_per_second for load in found[peer]]
    ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
    own, other = statistics.median(ours), statistics.median(theirs)
    return Row(
        what,
        f"{own / 1000:.0f}k rec/s",
        f"{other / 1000:.0f}k rec/s",
        own / other,
        (min(ratios), max(ratios)),
        1.2,
    )


def _ratio(what: str, ours: Sequence[float], peer: Sequence[float], limit: float, unit: str) -> Row:
    ratios = [own / other for own, other in zip(ours, peer, strict=True)]
    own, other = statistics.median(ours), statistics.median(peer)
    return Row(
        what,
        f"{own:.2f} {unit}",
        f"{other:.2f} {unit}",
        own / other,
        (min(ratios), max(ratios)),
        limit,
        at_most=True,
    )


def _limit(what: str, seconds: Sequence[float], limit: float) -> Row:
    middle = statistics.median(seconds)
    return Row(
        what,
        f"{middle * 1000:.0f} ms",
        f"{limit * 1000:.0f} ms allowed",
        middle / limit,
        (min(seconds) / limit, max(seconds) / limit),
        1.0,
        at_most=True,
    )


if __name__ == "__main__":
    main()
