"""The wheel and the sdist as a user gets them: built, and installed outside of the checkout."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from contextlib import contextmanager
from importlib.metadata import Distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.request import urlopen

import pytest
from trove_classifiers import classifiers as known_classifiers

import ottla
from tests.support.desk import Server
from tests.support.installed import Installed, requirements, size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
PIPELINE: Final = """
from ottla.spark.pipelines import console, flow, source

source("orders", topic="orders", schema="shop string")


@flow("all", reads=["orders"], writes=console())
def everything(orders):
    return orders
"""
MIB: Final = 1024 * 1024
BASE: Final = {"crc32c", "cramjam", "google-re2", "rich", "typer", "uvloop"}
"""What the base install asks for; all else are packages that these need."""
MAX_BASE_BYTES: Final = 40 * MIB
"""32 MiB are seen."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def build(source: Path, target: Path) -> Path:
    """A directory with the sdist and the wheel of a source."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("base"), wheel)


@pytest.fixture(scope="module")
def everything(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("all"), wheel, "all")


@contextmanager
def serving(installed: Installed, directory: Path, command: str, ready: str) -> Iterator[str]:
    """What a server says when it is ready; it is stopped at the end and ends well."""
    server = Server(command, directory, installed.environment, "server")
    try:
        yield server.wait_for(ready)
    finally:
        server.stop(signal.SIGTERM)


def bootstrap(said: str) -> str:
    return said.partition("ottla broker ready: ")[2].split()[0]


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "src"], capture_output=True, text=True, check=False
    )
    wanted = {name.removeprefix("src/") for name in listed.stdout.splitlines()}
    found = {name for name in files_of(wheel) if ".dist-info/" not in name}
    for name in ("templates/base.html", "static/console.css", "dashboards/ottla.json"):
        assert f"ottla/console/{name}" in wanted
    assert "ottla/py.typed" in wanted
    assert found == wanted


def test_the_version_and_the_classifiers(wheel: Path) -> None:
    assert wheel.name == f"ottla-{ottla.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as opened:
        metadata = opened.read(f"ottla-{ottla.__version__}.dist-info/METADATA").decode()
        entries = opened.read(f"ottla-{ottla.__version__}.dist-info/entry_points.txt").decode()
    said = re.findall(r"^Classifier: (.*)$", metadata, re.MULTILINE)
    assert [one for one in said if one not in known_classifiers] == []
    assert f"\n## {ottla.__version__}, " in (ROOT / "CHANGELOG.md").read_text()
    assert "ottla = ottla.cli:main" in entries
    assert "ottla = ottla.testing.plugin" in entries


def test_the_sdist_makes_the_same_wheel(built: Path, wheel: Path, tmp_path: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= {
        path.name for path in source.iterdir()
    }
    (again,) = build(source, tmp_path / "dist").glob("*.whl")
    assert files_of(again) == files_of(wheel)


def test_the_base_install_is_small(base: Installed, wheel: Path) -> None:
    needed = BASE | {name for one in BASE for name in requirements_of(base, one)}
    assert set(base.packages) == needed
    (info,) = base.site.glob("ottla-*.dist-info")
    own = {"ottla": Distribution.at(info)}
    assert size_of(base.packages) + size_of(own) < MAX_BASE_BYTES


def requirements_of(installed: Installed, name: str) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        package = installed.packages[waiting.pop()]
        new = {one for one, _ in requirements(package, frozenset())} - found
        found |= new
        waiting += new
    return found


def test_the_base_install_serves_writes_and_reads(base: Installed, tmp_path: Path) -> None:
    assert base.run("ottla", "--version", directory=tmp_path) == f"ottla {ottla.__version__}\n"
    with serving(base, tmp_path, "ottla broker --port 0", "ready: ") as said:
        at = ("--bootstrap", bootstrap(said))
        program = (
            "import sys\nfrom ottla.sync import Producer\n"
            "with Producer(sys.argv[1]) as producer: producer.send('greetings', b'hello')"
        )
        base.run("python", "-c", program, at[1], directory=tmp_path)
        told = base.run("ottla", "consume", "greetings", "--until-end", *at, directory=tmp_path)
        assert told.endswith(" hello\n")
        base.run("ottla", "group", "list", *at, directory=tmp_path)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("console",), "console"),
        (("broker", "--secure"), "security"),
        (("broker", "--registry", "--port", "0"), "registry"),
        (("broker", "--metrics-port", "0", "--port", "0"), "metrics"),
        (("table", "run", "--once"), "tables"),
        (("sql", "select 1"), "sql"),
        (("run", "pipeline.py", "--embedded"), "spark"),
        (("demo",), "all"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_base_install_names_the_extra(
    base: Installed, tmp_path: Path, command: tuple[str, ...], extra: str
) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    done = subprocess.run(
        ["ottla", *command],
        cwd=tmp_path,
        env=base.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in (1, 2)
    assert f"pip install 'ottla[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def get(url: str) -> str:
    with urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def test_the_console_serves_its_pages(wheel: Path, tmp_path: Path) -> None:
    """`ottla[console]` alone, beside a broker."""
    installed = Installed(tmp_path / "environment", wheel, "console")
    command = "ottla broker --port 0 --console-listen 127.0.0.1:0"
    with serving(installed, tmp_path, command, "ottla console: ") as said:
        url = said.partition("ottla console: ")[2].split()[0]
        page = get(url)
        assert "Overview" in page
        for path in set(re.findall(r'(?:href|src)="(/static/[^"]+)"', page)):
            assert get(url.rstrip("/") + path)
    installed.run("ottla", "console", "dashboards", "made", directory=tmp_path)
    assert (tmp_path / "made" / "ottla.json").exists()


@pytest.mark.parametrize(
    ("extra", "options", "ready"),
    [
        ("metrics", "--port 0 --metrics-port 0", "ready: "),
        ("registry", "--port 0 --set ottla.registry.listener=http://127.0.0.1:0", "registry at "),
        ("security", "--secure --listen 127.0.0.1:0", "client settings of the user admin"),
    ],
)
def test_an_extra_of_the_broker_is_enough(
    wheel: Path, tmp_path: Path, extra: str, options: str, ready: str
) -> None:
    installed = Installed(tmp_path / "environment", wheel, extra)
    with serving(installed, tmp_path, f"ottla broker {options}", ready) as said:
        if extra == "registry":
            url = said.partition("schema registry at ")[2].split()[0]
            (tmp_path / "order.proto").write_text(
                'syntax = "proto3"; message Order { int32 n = 1; }'
            )
            add = ("registry", "add", "orders-value", "order.proto", "--url", url)
            assert "has the id 1" in installed.run("ottla", *add, directory=tmp_path)


def test_tables_are_written_and_queried(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(tmp_path / "environment", wheel, "sql")
    with serving(installed, tmp_path, "ottla broker --port 0", "ready: ") as said:
        at = ("--bootstrap", bootstrap(said))
        enable = ("--config", "ottla.table.enable=true")
        installed.run("ottla", "topic", "create", "orders", *enable, *at, directory=tmp_path)
        installed.run("ottla", "table", "run", "--once", *at, directory=tmp_path)
        sql = ("ottla", "sql", "select count(*) as n from orders", "--csv")
        assert installed.run(*sql, *at, directory=tmp_path).split() == ["n", "0"]


def test_with_all_extras_every_module_can_be_imported(everything: Installed) -> None:
    walk = (
        "import importlib, pkgutil, ottla\n"
        "names = [one.name for one in pkgutil.walk_packages(ottla.__path__, 'ottla.')]\n"
        "for name in names:\n"
        "    if not name.endswith(('__main__', 'testing.plugin')): importlib.import_module(name)\n"
        "print(len(names), ottla.__file__)"
    )
    count, path = everything.run("python", "-c", walk, directory=Path("/")).split()
    assert int(count) > 500
    assert Path(path).is_relative_to(everything.site)
