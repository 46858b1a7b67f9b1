"""A process beside the broker that one thread starts, watches and ends.

It is told its settings in a line of JSON on its standard input, and sees the input's end when the
broker is gone. Its standard output ends when it ends; nothing else is said there. So no secret is
in an argument or in the environment.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STOP_SECONDS: Final = 5.0
"""A child that has not ended by then after SIGTERM is killed."""
# Variables of the broker's settings may be secrets; a child has what it needs through its pipe.
OWN_VARIABLES: Final = "OTTLA_"
KEPT_VARIABLES: Final = "OTTLA_TEST_"


def environment() -> dict[str, str]:
    """The broker's own, without its settings."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(OWN_VARIABLES) or name.startswith(KEPT_VARIABLES)
    }


class Watch:
    """What the thread waits for: descriptors, a child, and `wake` from other threads."""

    def __init__(self) -> None:
        self._wake_out, self._wake_in = os.pipe()
        self._lock = threading.Lock()
        self._is_closed = False
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The child, while one runs."""
        child = self._child
        return None if child is None else child.pid

    def wake(self) -> None:
        """End the current wait. From any thread, also after `close`."""
        with self._lock:
            # The number of a closed descriptor may be that of a log's file by now.
            if not self._is_closed:
                os.write(self._wake_in, b".")

    def close(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            self._is_closed = True
            os.close(self._wake_in)
            os.close(self._wake_out)

    def wait(self, fds: Sequence[int] = (), seconds: float | None = None) -> bool:
        """Whether one of the descriptors is ready; False after `wake` or the time."""
        with selectors.DefaultSelector() as selector:
            for fd in (*fds, self._wake_out):
                selector.register(fd, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(seconds)}
        if self._wake_out in ready:
            os.read(self._wake_out, 4096)
            return False
        return bool(ready)

    def run(
        self,
        command: Sequence[str],
        told: Mapping[str, object],
        goes_on: Callable[[], bool],
        pass_fds: Sequence[int] = (),
    ) -> int:
        """Start a child and wait for its end; its status. After a `wake` it is ended, unless
        `goes_on` says otherwise."""
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=pass_fds,
            env=environment(),
            process_group=0,  # Ctrl-C comes to the broker alone
        )
        self._child = child
        assert child.stdin is not None
        assert child.stdout is not None
        with suppress(BrokenPipeError):
            child.stdin.write(json.dumps(told).encode() + b"\n")
            child.stdin.flush()
        output = child.stdout.fileno()
        while goes_on():
            if self.wait([output]) and not os.read(output, 4096):
                break
        else:
            child.terminate()
        try:
            status = child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            status = child.wait()
        self._child = None
        with suppress(BrokenPipeError):
            child.stdin.close()
        child.stdout.close()
        return status
