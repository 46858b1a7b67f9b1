"""What `ottla demo --keep` says at its end."""

from __future__ import annotations

from ottla.cli.demo import kept
from ottla.demo.run import Summary


def test_the_address_and_the_console_are_named() -> None:
    url = "http://127.0.0.1:40123/"
    said = kept(Summary(500, 9, [], "127.0.0.1:9092", "/tmp/demo", url))
    assert said.count("--bootstrap 127.0.0.1:9092") == 3
    assert said.endswith(url)
