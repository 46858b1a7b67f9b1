"""A whole run prints no secret."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.client.cluster.view import TopicPartition
from ottla.offsets import OffsetKey, OffsetStoreError, SyncPostgresOffsetStore
from ottla.spark.log.mirror import Mirror
from ottla.streams import connect
from ottla.streams.errors import StreamError

if TYPE_CHECKING:
    from pathlib import Path


PLANTED = "pl4nted-s3cret"


run = CliRunner()


def test_a_run_prints_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Everything that commands, logs and tracebacks print when nothing can be reached."""
    caplog.set_level(logging.DEBUG)
    nobody = "127.0.0.1:1"
    clock = ["clock", "--output", f"file://{tmp_path}/x.ss/a", "--count", "1"]
    assert run.invoke(app, clock).exit_code == 0
    printed = []
    for args in (
        ["relay", "--input", f"redis://me:{PLANTED}@{nobody}/a", "--output", "stdio:///a"],
        ["relay", "--input", f"kafka://me:{PLANTED}@{nobody}/a", "--output", "stdio:///a"],
        ["relay", "--input", f"redis://me:{PLANTED}@{nobody}", "--output", "stdio:///a"],
        [
            *(
                "relay",
                "--input",
                f"file://{tmp_path}/x.ss/a",
                "--output",
                f"file://{tmp_path}/y.ss/a",
            ),
            *("--until-end", "--offsets", f"postgresql://me:{PLANTED}@{nobody}/db"),
        ],
        ["offsets", "list", f"postgresql://me:{PLANTED}@{nobody}/db"],
        ["offsets", "list", f"postgresql://me:{PLANTED}@{nobody}/db?bad"],
        ["offsets", "list", f"mysql://me:{PLANTED}@{nobody}/db"],
        ["offsets", "list", f"sqlite://me:{PLANTED}@{nobody}/db"],
        ["consume", f"kafka://me:{PLANTED}@{nobody}/a", "--timeout", "0.5"],
        ["topic", "list", "--bootstrap", f"me:{PLANTED}@{nobody}", "--timeout", "0.5"],
    ):
        done = run.invoke(app, args)
        assert done.exit_code in {1, 2}, (args, done.output)
        assert done.exception is None or isinstance(done.exception, SystemExit), args
        printed.append(done.output)
    with pytest.raises(ValueError, match="conninfo is neither") as malformed:
        SyncPostgresOffsetStore(f"postgresql//me:{PLANTED}@{nobody}")
    printed += traceback.format_exception(malformed.value)
    store = SyncPostgresOffsetStore(f"host=/nowhere passwordd={PLANTED}")
    with pytest.raises(OffsetStoreError) as caught:
        store.load(OffsetKey("group", "orders"))
    printed += traceback.format_exception(caught.value)

    def save(_: object) -> None:
        raise OSError(f"cannot reach redis://:{PLANTED}@host")

    mirror = Mirror(save, f"postgresql://me:{PLANTED}@host/db")
    mirror.save({TopicPartition("a", 0): 1})
    mirror.close()
    with pytest.raises(StreamError) as refused:
        connect(f"redis://:{PLANTED}@host?bad=x")
    printed += traceback.format_exception(refused.value)
    out, err = capfd.readouterr()
    for text in (*printed, caplog.text, out, err):
        assert PLANTED not in text
