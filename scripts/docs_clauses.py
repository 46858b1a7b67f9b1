"""The page of clauses: what five documents promise, what Ottla does, and the test that shows it.

    python scripts/docs_clauses.py     prints the page

mkdocs calls `on_files`, so the page exists in the site only and cannot be out of date. It is made
from the docstrings of `tests/clauses`, whose own docstring says how they are written.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

CLAUSES: Final = Path(__file__).parents[1] / "tests" / "clauses"
SYSTEMS: Final = ("share_consumer", "persister", "metadata_manager", "offset_stores", "streams")
DIFFERS: Final = "Differs:"
INTRODUCTION: Final = """# Clauses

Ottla offers what five documents describe. Hold one of them in one hand and this page in the other:
each row is one behaviour, how Ottla differs from the document if it does so on purpose, and
the test in `tests/clauses` that shows it.
"""


class Clause(NamedTuple):
    """One documented behaviour; `differs` is empty where Ottla does the same."""

    test: str
    says: str
    differs: str


class Section(NamedTuple):
    """One module: a part of a document."""

    path: str
    heading: str
    clauses: tuple[Clause, ...]


class System(NamedTuple):
    """One folder: a document."""

    name: str
    title: str
    notes: str
    sections: tuple[Section, ...]


def read_systems() -> list[System]:
    """All systems, in the order of `tests/clauses/__init__.py`."""
    return [_system(CLAUSES / name) for name in SYSTEMS if (CLAUSES / name).is_dir()]


def _system(folder: Path) -> System:
    title, _, notes = _docstring(folder / "__init__.py").partition("\n")
    sections = tuple(map(_section, sorted(folder.glob("test_*.py"))))
    return System(folder.name, title.rstrip("."), notes.strip(), sections)


def _section(path: Path) -> Section:
    heading = _docstring(path).partition("\n")[0].rstrip(".")
    return Section(path.name, heading, tuple(_clauses(path)))


def _clauses(path: Path) -> Iterator[Clause]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:5] == "test_":
            says, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
            differs = rest.removeprefix(DIFFERS) if rest.startswith(DIFFERS) else ""
            yield Clause(node.name, _line(says), _line(differs))


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def _line(text: str) -> str:
    return " ".join(text.split())


def clauses_page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for system in read_systems():
        parts.append(f"## {system.title}\n\n{system.notes}\n")
        for section in system.sections:
            rows = "".join(map(_row, section.clauses))
            parts.append(
                f"### {section.heading}\n\n`{system.name}/{section.path}`\n\n"
                f"| behaviour | how Ottla differs from the document | test |\n|---|---|---|\n{rows}"
            )
    return "\n".join(parts)


def _row(clause: Clause) -> str:
    cells = (clause.says, clause.differs, f"<code>{_breakable(clause.test)}</code>")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _breakable(name: str) -> str:
    return re.sub(r"_(?=.)", "_<wbr>", name)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "reference/clauses.md", content=clauses_page()))
    return files


if __name__ == "__main__":
    print(clauses_page())
