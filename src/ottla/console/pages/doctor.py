"""What the console may do, what it costs, and what the cluster can do."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from ottla.console.accounts import Role
from ottla.console.app import console_of
from ottla.console.login import person_of
from ottla.console.pages.shared import answer
from ottla.console.plain import plain
from ottla.console.snapshot import Kind
from ottla.console.views import doctor
from ottla.console.views.doctor import Own
from ottla.wire.schema import API_NAMES

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.console.views.doctor import DoctorPage

PACKAGES: Final = (
    "starlette",
    "uvicorn",
    "jinja2",
    "msgspec",
    "common-expression-language",
    "msgpack",
    "pyarrow",
    "protobuf",
)


async def doctor_view(request: Request) -> DoctorPage:
    console = console_of(request)
    watched = console.cluster(request)
    await watched.fresh(*Kind)
    sampler = watched.cluster.sampler
    role = person_of(request).role
    is_on = console.can(request, watched.name, Role.VIEWER)
    may = console.can(request, watched.name, Role.OPERATOR)
    if not is_on:
        why = "read-only: start it with --write to allow changes"
    else:
        why = f"started with --write, and your role is {role.word}"
    own = Own(
        version=console.version,
        python=platform.python_version(),
        packages=tuple((name, _version(name)) for name in PACKAGES),
        may_write=may,
        why=why,
        resident_bytes=_resident(),
        sampler_s=sampler.spent_s,
        partitions_a_tick=sampler.budget.partitions,
        groups_a_tick=sampler.budget.groups,
        series=len(sampler.history),
        series_not_kept=sampler.history.not_kept,
    )
    return doctor.page(watched.look(), watched.attention(), own, API_NAMES)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _resident() -> int | None:
    """Memory of this process; None where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(found[0]) * 1024 if found else None


async def doctor_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page = await doctor_view(request)
    return answer(request, watched, "doctor.html", "Doctor", page=page)


async def report(request: Request) -> Response:
    """The page as a file: no record contents, no secrets."""
    page = await doctor_view(request)
    body = msgspec.json.format(msgspec.json.encode(plain(page)), indent=2)
    return Response(
        body,
        media_type="application/json",
        headers={"content-disposition": 'attachment; filename="ottla-console-report.json"'},
    )
