"""`ottla doctor`: check the installation, the machine and a broker.

Each check is one line: ok, a note (something optional is missing), or broken, with what to do. A
broken check ends with status 1. A broker is checked only with --bootstrap.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

import typer

from ottla.cli.common import DEFAULT_TIMEOUT, EXTRAS, Json, Timeout, security
from ottla.cli.output import print_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.client.admin.types import ClusterDescription

Verdict: TypeAlias = Literal["ok", "note", "broken"]

PYTHON = (3, 11)
OPEN_FILES = 10_000  # a segment has three files, a connection is one
FREE_BYTES = 1 << 30
SYNCS = 21
SLOW_WRITE_SECONDS = 0.005  # disks that do not lie need a millisecond or less
GIB = 1 << 30
FIX = "the broker tells clients this address; set its advertised.listeners to one they can reach"

EXAMPLES = """
Examples:

  ottla doctor                                this machine and this installation

  ottla doctor --data-dir /var/lib/ottla      the disk the data will be on

  ottla doctor --bootstrap 127.0.0.1:9092     a broker, too
"""


class Check(NamedTuple):
    """What was checked, what was found, and what to do if it is not ok."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


def doctor(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="A directory on the disk to check.")
    ] = Path(),
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            metavar="HOST:PORT,...",
            envvar="OTTLA_BOOTSTRAP",
            help="Brokers to check.",
        ),
    ] = None,
    as_json: Json = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Check this machine, this installation and a broker, and say what to fix."""
    checks = [_python(), *_extras(), _java(), _open_files(), *_disk(data_dir)]
    if bootstrap is not None:
        checks += _broker(bootstrap, timeout)
    rows = [check._asdict() for check in checks]
    print_list("checks", rows, Check._fields, as_json=as_json)
    if any(check.verdict == "broken" for check in checks):
        raise typer.Exit(1)


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON:
        return Check("Python", "broken", found, "use Python 3.11 or later")
    return Check("Python", "ok", found)


def _extras() -> Iterator[Check]:
    from importlib.util import find_spec

    for extra in sorted(set(EXTRAS.values())):
        packages = sorted(package for package, its in EXTRAS.items() if its == extra)
        missing = [package for package in packages if find_spec(package) is None]
        if missing:
            found, advice = f"no {', '.join(missing)}", f"pip install 'ottla[{extra}]' if needed"
            yield Check(f"extra {extra}", "note", found, advice)
        else:
            yield Check(f"extra {extra}", "ok", ", ".join(packages))


def _java() -> Check:
    from ottla.spark.errors import NoJava
    from ottla.spark.java import find_java

    try:
        return Check("Java for Spark", "ok", str(find_java()))
    except NoJava:
        return Check("Java for Spark", "note", "none", "pip install 'ottla[spark]' if needed")


def _open_files() -> Check:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return Check("open files", "note", "unknown")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < OPEN_FILES:
        return Check("open files", "note", f"at most {most}", "raise it: ulimit -Hn 65536")
    return Check("open files", "ok", f"at most {most}")


def _disk(directory: Path) -> Iterator[Check]:
    """Free space, and how long a sync and a write to the journal take: acks=all waits for one."""
    try:
        free = shutil.disk_usage(directory).free
        seconds = _sync_time(directory)
        written = _write_time(directory)
    except OSError as error:
        advice = "choose a directory that is there and can be written to"
        yield Check("data directory", "broken", f"{directory}: {error.strerror}", advice)
        return
    if free < FREE_BYTES:
        yield Check(
            "free space", "note", f"{free / GIB:.1f} GiB", "make room, or shorten retention"
        )
    else:
        yield Check("free space", "ok", f"{free / GIB:.0f} GiB")
    yield Check("disk sync", "ok", f"{seconds * 1000:.2f} ms (median)")
    found = f"{written * 1000:.2f} ms (median)"
    if written > SLOW_WRITE_SECONDS:
        advice = "acks=all waits for it; ottla.journal.dir puts the journal on another disk"
        yield Check("journal write", "note", found, advice)
    else:
        yield Check("journal write", "ok", found)


def _sync_time(directory: Path) -> float:
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return sorted(times)[SYNCS // 2]


def _write_time(directory: Path) -> float:
    """As the journal does it: a durable write over a part of a file that was written before."""
    from ottla.log.os_storage import OsStorage

    storage, block, times = OsStorage(), bytes(4096), []
    with tempfile.TemporaryFile(dir=directory) as file:
        storage.write_durably(file.fileno(), [block] * SYNCS, 0)
        for number in range(SYNCS):
            began = time.perf_counter()
            storage.write_durably(file.fileno(), [block], number * len(block))
            times.append(time.perf_counter() - began)
    return sorted(times)[SYNCS // 2]


def _broker(bootstrap: str, within: float) -> list[Check]:
    """The broker, and each address that it tells its clients and that cannot be reached."""
    import asyncio

    from ottla.client.admin.admin import Admin
    from ottla.client.errors import ClientError

    async def reach(address: str) -> Check | None:
        try:
            async with Admin(address, api_timeout=within, security=security()) as admin:
                await admin.connect()
        except (ClientError, ValueError) as error:
            what = str(error).partition("; ")[0]
            return Check(f"advertised {address}", "broken", f"{_failing_step(error)}: {what}", FIX)
        return None

    async def ask() -> tuple[ClusterDescription, int, list[Check]]:
        async with Admin(bootstrap, api_timeout=within, security=security()) as admin:
            await admin.connect()
            cluster = await admin.describe_cluster()
            topics = await admin.list_topics()
        told = {str(broker.address) for broker in cluster.brokers} - set(bootstrap.split(","))
        faults = [fault for fault in await asyncio.gather(*map(reach, sorted(told))) if fault]
        return cluster, len(topics), faults

    name = f"broker {bootstrap}"
    try:
        cluster, topics, faults = asyncio.run(ask())
    except (ClientError, ValueError) as error:
        what, _, advice = str(error).partition("; ")
        return [Check(name, "broken", f"{_failing_step(error)}: {what}", advice)]
    found = f"cluster {cluster.cluster_id}: {len(cluster.brokers)} node(s), {topics} topic(s)"
    if not topics and security().has_sasl:
        note = "the user may see no topic, or there is none"
        return [Check(name, "note", f"ACL: {found}", note), *faults]
    return [Check(name, "ok", found), *faults]


def _failing_step(error: Exception) -> str:
    """What did not work: name, TCP, TLS, certificate, SASL, ACL or the protocol above."""
    import socket

    from ottla.client import errors

    step = "protocol"
    cause: BaseException | None = error
    while cause is not None:  # what was tried until the time was over is the cause of giving up
        what = str(cause)
        match cause:
            case errors.TlsFailed():
                return "certificate" if "certificate" in what else "TLS"
            case errors.WrongProtocol():
                return "TLS" if "TLS" in what else "protocol"
            case errors.AuthenticationFailed() | errors.UnsupportedSecurity():
                return "SASL"
            case errors.AuthorizationFailed():
                return "ACL"
            case errors.ConnectionLost() if "login" in what:
                return "SASL"
            case socket.gaierror():
                return "name"
            case errors.BrokerUnreachable() if what.startswith("cannot connect"):
                step = "TCP"
        cause = cause.__cause__
    return step
