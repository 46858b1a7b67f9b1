"""Which connections an HTTP listener lets in: each limit, and what is told."""

from __future__ import annotations

from ottla.broker.access.http_admission import AdmissionLimits, HttpAdmission


class Bench:
    def __init__(self, limits: AdmissionLimits | None = None) -> None:
        self.limits = limits or AdmissionLimits()
        self.rates: dict[str, float] = {}
        self.now = 100.0
        self.told: list[str] = []
        self.admission = HttpAdmission(
            "REGISTRY",
            lambda: self.limits,
            self.rates.get,
            lambda: self.now,
            lambda _, text: self.told.append(text),
        )

    def open(self, host: str = "10.0.0.1", times: int = 1) -> int:
        """How many of so many connections are let in."""
        return sum(self.admission.opened(host) for _ in range(times))


def test_256_connections_unless_it_is_told_otherwise() -> None:
    bench = Bench()
    assert bench.open(times=300) == 256
    assert bench.told[0] == (
        "refused a connection of 10.0.0.1: listener.name.registry.max.connections is reached"
    )
    assert bench.admission.refused == 44
    bench.admission.closed("10.0.0.1")
    assert bench.open(times=2) == 1
    bench.limits = AdmissionLimits(connections=1000)  # altered while it runs
    assert bench.open(times=10) == 10


def test_connections_of_an_address_and_its_override() -> None:
    bench = Bench(AdmissionLimits(of_address=2, overrides={"10.0.0.9": 4}))
    assert bench.open("10.0.0.1", 5) == 2
    assert bench.open("::ffff:10.0.0.1") == 0, "the same address, written otherwise"
    assert bench.open("10.0.0.9", 5) == 4
    assert bench.told[0] == "refused a connection of 10.0.0.1: max.connections.per.ip is reached"
    bench.admission.closed("::ffff:10.0.0.1")
    assert bench.open("10.0.0.1", 5) == 1


def test_the_rate_of_the_listener() -> None:
    bench = Bench(AdmissionLimits(rate=5))
    assert bench.open("10.0.0.1", 3) + bench.open("10.0.0.2", 9) == 5
    assert bench.told[0].endswith("listener.name.registry.max.connection.creation.rate is reached")
    bench.now += 0.4
    assert bench.open(times=9) == 2
    bench.limits = AdmissionLimits()
    assert bench.open(times=9) == 9


def test_the_quota_of_an_address() -> None:
    bench = Bench()
    bench.rates["10.0.0.1"] = 2
    assert bench.open("10.0.0.1", 5) == 2
    assert bench.open("10.0.0.2", 5) == 5
    assert (
        bench.told
        == ["refused a connection of 10.0.0.1: the quota connection_creation_rate is reached"] * 3
    )
    bench.now += 1
    assert bench.open("10.0.0.1", 5) == 2
    del bench.rates["10.0.0.1"]
    assert bench.open("10.0.0.1", 5) == 5


def test_who_is_refused_by_one_rate_does_not_use_up_another() -> None:
    bench = Bench(AdmissionLimits(rate=3))
    bench.rates["10.0.0.1"] = 1
    assert bench.open("10.0.0.1", 50) == 1
    assert bench.open("10.0.0.2", 50) == 2
