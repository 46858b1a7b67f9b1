"""The page of the house is true: its tree and its tables are those of the code."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

from ottla.broker.access.listeners import CONSOLE, METRICS, REGISTRY
from ottla.cli.broker import CONSOLE_ADDRESS, REGISTRY_ADDRESS
from ottla.cli.whole import app
from ottla.console.letters import REDRIVE_TOPIC
from ottla.metadata.config.broker_keys import BROKER_CONFIGS
from ottla.metadata.names import OWN_TOPICS, PIPELINES_TOPIC, POINTER_TOPIC
from scripts.generate_schema import EXTENSIONS

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "ottla"
PAGE: Final = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def table(title: str) -> list[list[str]]:
    """The cells of the first table of a section, without its head."""
    rows = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def packages(directory: Path) -> set[str]:
    return {one.parent.name for one in directory.glob("*/__init__.py")}


def tree() -> dict[str, str]:
    """By room: what stands beside and below its name."""
    text = section("Rooms").partition("```text\n")[2].partition("```")[0]
    found = re.findall(r"^(\S+)(.*(?:\n .*)*)", text, re.MULTILINE)
    return {name.rstrip("/"): rest for name, rest in found}


def test_every_room_is_in_the_tree() -> None:
    modules = {one.name for one in SOURCE.glob("*.py")} - {"__init__.py"}
    assert set(tree()) == packages(SOURCE) | modules


@pytest.mark.parametrize("room", sorted(packages(SOURCE)))
def test_every_sub_room_is_in_the_tree(room: str) -> None:
    below = tree()[room].partition("\n")[2]
    assert packages(SOURCE / room) <= set(re.findall(r"\w+", below))
    first = {words.split()[0] for words in below.splitlines() if words.split()}
    assert first <= {one.name for one in (SOURCE / room).iterdir()}


def test_the_layers_are_those_that_are_checked() -> None:
    (layers,) = [
        contract["layers"]
        for contract in PROJECT["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    ]
    wanted = [re.findall(r"\w+", layer) for layer in layers]
    assert [code(row[0]) for row in table("Rooms")] == wanted
    names = [name for layer in wanted for name in layer]
    assert sorted(names) == sorted(name.removesuffix(".py") for name in tree())


def test_processes_run_modules_that_exist() -> None:
    for _, module, started, _ in table("Processes"):
        assert find_spec(code(module)[0]) is not None
        for command in code(started):
            if command.startswith("ottla ") and "=" not in command:
                command_of(command.split()[1:])


def command_of(words: list[str]) -> Any:
    """The command of the command line; options are looked for in it."""
    found: Any = typer.main.get_command(app)
    for word in words:
        if word.startswith("--"):
            assert word in {name for one in found.params for name in one.opts}
        elif word.islower():
            found = found.commands[word]
    return found


def test_listeners() -> None:
    rows = {name: cells for name, *cells in table("Listeners")}
    assert {REGISTRY, METRICS, CONSOLE} < set(rows)
    for key, option, _, _ in rows.values():
        assert code(key)[0] in BROKER_CONFIGS
        command_of(["broker", code(option)[0]])
    (kafka,) = set(rows) - {REGISTRY, METRICS, CONSOLE}
    default = BROKER_CONFIGS["listeners"].default
    assert rows[kafka][2].startswith(str(default).removeprefix("PLAINTEXT://"))
    assert REGISTRY_ADDRESS in rows[REGISTRY][2]
    assert CONSOLE_ADDRESS in rows[CONSOLE][2]
    http = {key for key in BROKER_CONFIGS if re.fullmatch(r"ottla\.\w+\.listener", key)}
    assert http == {code(rows[name][0])[0] for name in (REGISTRY, METRICS, CONSOLE)}


def test_extras() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = {"(none)": names(PROJECT["project"]["dependencies"])}
    wanted |= {extra: names(extras[extra]) for extra in extras.keys() - {"all", "docs", "dev"}}
    *rows, (last, every) = table("Extras")
    assert (last, every) == ("`all`", "all of these")
    shown = {
        extra.strip("`"): {cell.strip("` ") for cell in re.split(r", (?![\w,]*\])", cells)}
        for extra, cells in rows
    }
    assert shown == wanted
    named = {name for text in extras["all"] for name in re.findall(r"[\w]+", text)} - {"ottla"}
    assert named == wanted.keys() - {"(none)"}


def names(requirements: list[str]) -> set[str]:
    """Without versions and markers; of Ottla itself with its extras."""
    return {
        text if text.startswith("ottla[") else re.split(r"[\[<>=;]", text)[0]
        for text in requirements
    }


def test_topics() -> None:
    registry = str(BROKER_CONFIGS["ottla.registry.topic"].default)
    wanted = OWN_TOPICS | {POINTER_TOPIC, PIPELINES_TOPIC, REDRIVE_TOPIC, registry}
    assert {code(topic)[0] for topic, *_ in table("Topics of our own")} == wanted
    # What the sources name is not more than that.
    sources = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    assert set(re.findall(r'_TOPIC: Final = "((?:_|ottla\.)[\w.]+)"', sources)) <= wanted


def test_tagged_fields() -> None:
    shown = {
        (struct, name, kind, int(tag))
        for struct, tags in table("Tagged fields of our own")
        for tag, name, kind in re.findall(r"(\d+) `(\w+)` ([\w\[\]]+)", tags)
    }
    assert shown == {(struct, name, kind, tag) for struct, name, kind, _, tag in EXTENSIONS}
