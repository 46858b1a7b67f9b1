"""The program that Spark starts as its Python: asks the zygote to run a module.

    python -I -S zygote_request.py SOCKET -m MODULE ...

It imports as little as it can, and nothing of Ottla. See `zygote`.
"""
# ruff: noqa: PTH109, PTH123  # to import pathlib takes longer than all of this

import os
import sys

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than all of this
if TYPE_CHECKING:
    from _socket import socket


def main() -> None:
    """Ask, and end as the copy ends; without one become the Python that Spark asked for."""
    path, *arguments = sys.argv[1:]
    if arguments[:1] == ["-m"]:
        status = _asked(path, arguments)
        if status is not None:
            os._exit(status)
    os.execv(sys.executable, [sys.executable, *arguments])


def _asked(path: str, arguments: list[str]) -> int | None:
    """The status with which the copy ended; None if there is no copy."""
    import _socket
    from json.encoder import JSONEncoder

    client = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    told = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
    text = JSONEncoder().encode(told).encode()
    number = b""
    try:
        client.connect(path)
        rights = b"".join(one.to_bytes(4, sys.byteorder) for one in range(3))
        client.sendmsg(
            [len(text).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)]
        )
        client.sendall(text)
        number = _answer(client)
    except OSError:
        pass
    if not number:
        client.close()
        return None
    for one in range(3):  # they are the copy's
        os.close(one)
    retitle("ottla.spark.zygote", "request", "for", str(int.from_bytes(number, "big")))
    try:
        status = _answer(client)
    except OSError:
        status = b""
    return status[-1] if status else 1


def _answer(client: "socket") -> bytes:
    """Four bytes, or none if the zygote has hung up."""
    found = b""
    while len(found) < 4:
        some = client.recv(4 - len(found))
        if not some:
            return b""
        found += some
    return found


def retitle(*words: str) -> None:
    """Show these words as the command of this process, as far as there is room."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        begin, room = int(fields[45]), int(fields[46]) - int(fields[45]) - 1
        text = "\0".join(words).encode()[:room]
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(begin)
            memory.write(text.ljust(room + 1, b"\0"))
    except (OSError, ValueError):
        pass  # the old words are not wrong


if __name__ == "__main__":
    main()
