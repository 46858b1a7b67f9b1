"""The command line whose streams are closed, or take no more."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.embedded import EmbeddedBroker


def ottla(*args: str, streams: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The program, with its streams as a shell is told."""
    return subprocess.run(
        ["/bin/sh", "-c", f'"$@" {streams}', "sh", sys.executable, "-m", "ottla.cli", *args],
        env={**os.environ, **env},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("streams", [">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_is_printed_to_a_closed_stream_goes_nowhere(
    ottla_broker: EmbeddedBroker, form: tuple[str, ...], streams: str
) -> None:
    bootstrap = ottla_broker.bootstrap
    done = ottla("topic", "list", *form, streams=streams, OTTLA_BOOTSTRAP=bootstrap)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_under_the_output_is_a_sentence() -> None:
    done = ottla("--help", streams=">/dev/full")
    assert (done.returncode, done.stderr) == (
        1,
        "ottla: cannot write the output: No space left on device\n",
    )


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    assert ottla("--help", streams="| true").stderr == ""
