"""Write the synchronous twins, src/ottla/sync/*.py, from the sources of the async classes.

python scripts/generate_sync.py            write them
python scripts/generate_sync.py --check    say whether they are up to date

A twin has every public method, property and attribute of its class and of the class's bases, with
the same arguments, types, defaults and texts; its bodies only hand over to the async object.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.client.admin.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.client.reader.reader import Reader
from ottla.client.share.consumer import ShareConsumer
from ottla.client.transactions.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SYNC = Path(__file__).parent.parent / "src" / "ottla" / "sync"
CLASSES: tuple[type, ...] = (Admin, Consumer, Producer, Reader, ShareConsumer, Transaction)
# ShareConsumer's twin is in share_consumer.py.
HOMES = {cls.__name__: re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower() for cls in CLASSES}

# What a twin has from its base class, and what its iteration is called.
INHERITED = {"__aenter__", "__aexit__"}
ITERATION = {"__aiter__": "__iter__", "__anext__": "__next__"}

TWINS = "|".join(cls.__name__ for cls in CLASSES)
WORDS = (
    (re.compile(r"\basync (with|for)\b"), r"\1"),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\bAn async (context manager)"), r"A \1"),
    (re.compile(r"\ban async (iterator)"), r"an \1"),
    (re.compile(rf"\bfrom ottla import ({TWINS})$", re.MULTILINE), r"from ottla.sync import \1"),
)


def without_async(text: str) -> str:
    """A docstring as the twin's users read it, examples included."""
    for pattern, replacement in WORDS:
        text = pattern.sub(replacement, text)
    return text


class Names:
    """The imports a generated module needs, found where the async class has its names from."""

    def __init__(self) -> None:
        self._at_runtime: set[str] = set()
        self._for_types: set[str] = set()

    def add(self, module: str, node: ast.AST | None, *, runtime: bool) -> None:
        """Whatever the expression refers to."""
        if node is None:
            return
        for found in ast.walk(node):
            if isinstance(found, ast.Name) and not hasattr(builtins, found.id):
                into = self._at_runtime if runtime else self._for_types
                into.add(_import_of(module, found.id))

    def needed_at_runtime(self, line: str) -> None:
        self._at_runtime.add(line)

    def lines(self) -> Iterator[str]:
        yield from sorted(self._at_runtime | {"from typing import TYPE_CHECKING"})
        yield "if TYPE_CHECKING:"
        for line in sorted(self._for_types - self._at_runtime):
            yield f"    {line}"


def _import_of(module: str, name: str) -> str:
    if name in ("Iterator", "Self"):
        return f"from {'collections.abc' if name == 'Iterator' else 'typing'} import {name}"
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    what = alias.name if alias.asname is None else f"{alias.name} as {name}"
                    start = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
                    return f"{start}import {what}"
    return f"from {module} import {name}"


def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def _class_node(cls: type) -> ast.ClassDef:
    found = [
        node
        for node in _tree(cls.__module__).body
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    ]
    return found[0]


def _members(cls: type) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The public methods with the modules they are written in, those of bases after its own."""
    seen = set()
    for base in cls.__mro__[:-1]:
        for node in _class_node(base).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in seen:
                is_public = not node.name.startswith("_") or node.name in ITERATION
                if is_public and node.name not in INHERITED:
                    seen.add(node.name)
                    yield base.__module__, node


def _attributes(init: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """The public attributes that the constructor sets, with their types."""
    types = {one.arg: one.annotation for one in (*init.args.args, *init.args.kwonlyargs)}
    for node in init.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if not isinstance(target, ast.Attribute) or target.attr.startswith("_"):
                continue
            if isinstance(node, ast.AnnAssign):
                annotation: ast.expr | None = node.annotation
            else:
                annotation = types.get(node.value.id) if isinstance(node.value, ast.Name) else None
            if annotation is None:
                raise SystemExit(f"say of which type self.{target.attr} is")
            yield target.attr, annotation


def _forwarded(args: ast.arguments) -> str:
    by_place = [one.arg for one in args.args[1:]]
    return ", ".join([*by_place, *(f"{one.arg}={one.arg}" for one in args.kwonlyargs)])


def _doc(node: ast.AST, indent: str) -> Iterable[str]:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    text = ast.get_docstring(node, clean=False)
    return [] if text is None else [f'{indent}"""{without_async(text)}"""']


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = _forwarded(node.args)
    returns = "" if node.returns is None else ast.unparse(node.returns)
    is_property = any(ast.unparse(one) == "property" for one in node.decorator_list)
    if node.name == "__aiter__" and returns == "Self":
        body = "return self"
    elif node.name == "__anext__":
        body = (
            "found = self._next(self._async)\n"
            "        if found is None:\n"
            "            raise StopIteration\n"
            "        return found[0]"
        )
    elif is_property:
        body = f"return self._call(lambda: self._async.{node.name})"
    elif returns.startswith("AsyncIterator["):
        returns = returns.removeprefix("Async")
        body = f"return self._each(self._async.{node.name}({given}))"
    elif returns in HOMES:
        body = f"return {returns}._of(self._call(self._async.{node.name}))"
    elif isinstance(node, ast.AsyncFunctionDef):
        body = f"return self._run(self._async.{node.name}({given}))"
    elif given:
        body = f"return self._call(lambda: self._async.{node.name}({given}))"
    else:
        body = f"return self._call(self._async.{node.name})"
    if returns == "None":
        body = body.removeprefix("return ")
    name = ITERATION.get(node.name, node.name)
    return [
        *(["    @property"] if is_property else []),
        f"    def {name}({ast.unparse(node.args)}) -> {returns}:",
        *_doc(node, "        "),
        f"        {body}",
        "",
    ]


def module_source(cls: type) -> str:
    names = Names()
    node = _class_node(cls)
    home = cls.__module__
    init = next(
        one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"
    )
    made_of = f"Async{cls.__name__}"
    names.needed_at_runtime(f"from {home} import {cls.__name__} as {made_of}")
    names.needed_at_runtime("from ottla.sync.twin import Twin")
    body = [
        f"class {cls.__name__}(Twin[{made_of}]):",
        *_doc(node, "    "),
        "",
        f"    def __init__({ast.unparse(init.args)}) -> None:",
        f"        super().__init__(lambda: {made_of}({_forwarded(init.args)}))",
        "",
    ]
    _collect(names, home, init)
    for name, annotation in _attributes(init):
        names.add(home, annotation, runtime=False)
        body += [
            "    @property",
            f"    def {name}(self) -> {ast.unparse(annotation)}:",
            '        """As given."""',
            f"        return self._async.{name}",
            "",
        ]
    for module, member in _members(cls):
        _collect(names, module, member)
        body += _method(member)
    return "\n".join(
        [
            f'"""{cls.__name__} without async. Made by scripts/generate_sync.py; do not edit."""',
            "",
            "from __future__ import annotations",
            "",
            *names.lines(),
            "",
            *body,
        ]
    )


def _collect(names: Names, module: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """The names of a signature: annotations are for type checkers, defaults are evaluated."""
    every = [*node.args.args, *node.args.kwonlyargs]
    for annotation in [*(one.annotation for one in every), node.returns]:
        for found in ast.walk(annotation) if annotation is not None else ():
            if isinstance(found, ast.Name) and found.id == "AsyncIterator":
                names.add(module, ast.Name("Iterator"), runtime=False)
            elif isinstance(found, ast.Name) and found.id in HOMES:
                names.needed_at_runtime(f"from ottla.sync.{HOMES[found.id]} import {found.id}")
            elif isinstance(found, ast.Name):
                names.add(module, found, runtime=False)
    for default in [*node.args.defaults, *node.args.kw_defaults]:
        names.add(module, default, runtime=True)


def sources() -> dict[str, str]:
    return {f"{HOMES[cls.__name__]}.py": module_source(cls) for cls in CLASSES}


def write(target: Path) -> None:
    paths = []
    for name, source in sources().items():
        paths.append(str(target / name))
        (target / name).write_text(source)
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "--quiet", "--fix", "--select=I", *paths], check=True)
    subprocess.run([*ruff, "format", "--quiet", *paths], check=True)


def main() -> int:
    if "--check" not in sys.argv:
        write(SYNC)
        return 0
    # Inside the project, so that the formatter finds its settings.
    with tempfile.TemporaryDirectory(dir=SYNC) as scratch:
        write(Path(scratch))
        stale = [
            one.name
            for one in sorted(Path(scratch).glob("*.py"))
            if one.read_text() != (SYNC / one.name).read_text()
        ]
    for name in stale:
        print(f"out of date: {name}; run scripts/generate_sync.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
