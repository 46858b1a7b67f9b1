"""The console as a child of a broker: `python -m ottla.console`.

Its standard input begins with a line of JSON: the descriptors of its listening sockets (`fds`), its
`listener`, the broker's `bootstrap`, how visitors log in there (`security`, if they have to),
whether it may `write`, after how many idle seconds it leaves (`idle_exit_s`), and where its history
is kept (`state`; empty: nowhere). The end of the
input means that the broker is gone. It prints nothing to standard output.
"""

from __future__ import annotations

import gc
import json
import socket
import sys
from typing import Final

from ottla.console.settings import BadSetting, ClusterSettings, Settings, settled

MAX_LINE: Final = 64 * 1024


def main() -> int:
    line = sys.stdin.buffer.raw.readline(MAX_LINE)  # type: ignore[union-attr]  # a pipe has one
    if not line.endswith(b"\n"):
        print(
            "ottla console: started without settings; `ottla console` runs it by hand",
            file=sys.stderr,
        )
        return 2
    told = json.loads(line)
    try:
        # Somebody waits for the first page. What is imported stays, so nothing can be collected:
        # without looking for it the imports take an eighth less.
        gc.disable()
        from ottla.console.serve import serve

        gc.freeze()
        gc.enable()
        security = tuple(told.get("security", {}).items())
        cluster = ClusterSettings("local", told["bootstrap"], write=told["write"], told=security)
        settings = Settings(
            listener=told["listener"],
            write=told["write"],
            idle_exit_s=told["idle_exit_s"],
            state=told.get("state", ""),
            clusters=(cluster,),
        )
        sockets = [socket.socket(fileno=fd) for fd in told["fds"]]
        serve(settled(settings), sockets, lambda: None, parent=sys.stdin.fileno())
    except (BadSetting, OSError) as error:
        print(f"ottla console: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
