"""What `ottla demo --keep` says at its end."""

from __future__ import annotations

from ottla.cli.demo import kept
from ottla.demo.run import Summary


def test_the_console_is_named_if_there_is_one() -> None:
    without = kept(Summary(500, 9, [], "127.0.0.1:9092", "/tmp/demo"))
    assert "--bootstrap 127.0.0.1:9092" in without
    assert "console" not in without
    url = "http://127.0.0.1:40123/"
    assert kept(Summary(500, 9, [], "127.0.0.1:9092", "/tmp/demo", url)).endswith(url)
