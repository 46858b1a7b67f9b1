"""Write the synchronous twins, src/ottla/sync/**/*.py, from the sources of the async classes.

python scripts/generate_sync.py            write them
python scripts/generate_sync.py --check    say whether they are up to date

A twin has every public method, property and attribute of its class and of the class's bases, with
the same arguments, types, defaults and texts; its bodies only hand over to the async object.
Methods whose docstring begins with "Internal:" are left out.
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
from typing import TYPE_CHECKING, NamedTuple

from ottla import streams
from ottla.client.admin.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.client.reader.reader import Reader
from ottla.client.share.consumer import ShareConsumer
from ottla.client.transactions.transaction import Transaction
from ottla.schemas.registry_client import SchemaRegistry
from ottla.streams.streamer import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SYNC = Path(__file__).parent.parent / "src" / "ottla" / "sync"


class Family(NamedTuple):
    """Classes that make each other, their package, and the function that makes the first."""

    package: str
    classes: tuple[type, ...]
    function: Callable[..., object] | None = None

    def homes(self) -> dict[str, str]:
        """Where the twin of a class is: ShareConsumer's is in share_consumer.py."""
        return {
            cls.__name__: f"{self.package}." + re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
            for cls in self.classes
        }


CLIENTS = Family(
    "ottla.sync",
    (Admin, Consumer, Producer, Reader, SchemaRegistry, ShareConsumer, Transaction),
)
STREAMS = Family(
    "ottla.sync.streams",
    (streams.Streamer, streams.Consumer, streams.Producer, streams.Delivery),
    connect,
)
FAMILIES = (CLIENTS, STREAMS)

# What a twin has from its base class, and what its iteration is called.
INHERITED = {"__aenter__", "__aexit__"}
ITERATION = {"__aiter__": "__iter__", "__anext__": "__next__", "__await__": "wait"}
INTERNAL = "Internal:"

TWINS = "|".join([cls.__name__ for cls in CLIENTS.classes] + ["connect"])
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
        """The object that the expression refers to."""
        if node is None:
            return
        for found in ast.walk(node):
            if isinstance(found, ast.Name) and not hasattr(builtins, found.id):
                into = self._at_runtime if runtime else self._for_types
                into.add(_import_of(module, found.id))

    def needed_at_runtime(self, line: str) -> None:
        self._at_runtime.add(line)

    def add_type(self, line: str) -> None:
        self._for_types.add(line)

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
                is_public = is_public and not (ast.get_docstring(node) or "").startswith(INTERNAL)
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


def _forwarded(args: ast.arguments, homes: dict[str, str]) -> str:
    """The arguments of a call; where a twin was given, the object behind it is handed on."""

    def value(one: ast.arg) -> str:
        annotation = "" if one.annotation is None else ast.unparse(one.annotation)
        if not homes.keys() & set(annotation.split(" | ")):
            return one.arg
        return f"None if {one.arg} is None else {one.arg}._async"

    by_place = [value(one) for one in args.args[1:]]
    if args.vararg is not None:
        by_place.append(f"*{args.vararg.arg}")
    return ", ".join([*by_place, *(f"{one.arg}={value(one)}" for one in args.kwonlyargs)])


def _doc(node: ast.AST, indent: str) -> Iterable[str]:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    text = ast.get_docstring(node, clean=False)
    return [] if text is None else [f'{indent}"""{without_async(text)}"""']


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef, homes: dict[str, str]) -> list[str]:
    given = _forwarded(node.args, homes)
    returns = "" if node.returns is None else ast.unparse(node.returns)
    decorators = {ast.unparse(one) for one in node.decorator_list}
    call = f"self._async.{node.name}({given})"
    quick = f"lambda: {call}" if given else f"self._async.{node.name}"
    if node.name == "__aiter__" and returns == "Self":
        body = "return self"
    elif node.name == "__aiter__":
        body = f"return self._each(self._call({quick}))"
    elif node.name == "__anext__":
        body = (
            "found = self._next(self._async)\n"
            "        if found is None:\n"
            "            raise StopIteration\n"
            "        return found[0]"
        )
    elif node.name == "__await__":
        returns = returns.removesuffix("]").rpartition(", ")[2]
        body = "return self._run(awaited(self._async))"
    elif "property" in decorators:
        body = f"return self._call(lambda: self._async.{node.name})"
    elif "asynccontextmanager" in decorators:
        body = f"with self._within(lambda: {call}):\n            yield"
    elif returns.startswith("AsyncIterator["):
        body = f"return self._each({call})"
    elif returns in homes:
        is_async = isinstance(node, ast.AsyncFunctionDef)
        made = f"self._run({call})" if is_async else f"self._call({quick})"
        body = f"return {returns}._of({made})"
    elif isinstance(node, ast.AsyncFunctionDef):
        body = f"return self._run({call})"
    else:
        body = f"return self._call({quick})"
    if returns == "None":
        body = body.removeprefix("return ")
    name = ITERATION.get(node.name, node.name)
    return [
        *(["    @property"] if "property" in decorators else []),
        *(["    @contextmanager"] if "asynccontextmanager" in decorators else []),
        f"    def {name}({ast.unparse(node.args)}) -> {returns.removeprefix('Async')}:",
        *_doc(node, "        "),
        f"        {body}",
        "",
    ]


def _function(function: Callable[..., object], names: Names) -> list[str]:
    """A function that makes the first class of a family."""
    home = function.__module__
    node = next(
        one
        for one in _tree(home).body
        if isinstance(one, ast.FunctionDef) and one.name == function.__name__
    )
    assert node.returns is not None
    returns = ast.unparse(node.returns)
    _collect(names, home, node, {}, own=returns)
    made_of = f"async_{function.__name__}"
    names.needed_at_runtime(f"from {home} import {function.__name__} as {made_of}")
    given = ", ".join(one.arg for one in node.args.args)
    return [
        f"def {function.__name__}({ast.unparse(node.args)}) -> {returns}:",
        *_doc(node, "    "),
        f"    return {returns}._made(lambda: {made_of}({given}))",
        "",
    ]


def module_source(cls: type, family: Family) -> str:
    names = Names()
    homes = family.homes()
    node = _class_node(cls)
    home = cls.__module__
    init = next(
        one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"
    )
    made_of = f"Async{cls.__name__}"
    base = "Twin" if hasattr(cls, "__aenter__") else "Held"
    names.needed_at_runtime(f"from {home} import {cls.__name__} as {made_of}")
    names.needed_at_runtime(f"from ottla.sync.twin import {base}")
    body = [
        f"class {cls.__name__}({base}[{made_of}]):",
        *_doc(node, "    "),
        "",
        f"    def __init__({ast.unparse(init.args)}) -> None:",
        f"        super().__init__(lambda: {made_of}({_forwarded(init.args, {})}))",
        "",
    ]
    _collect(names, home, init, {})
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
        others = {name: at for name, at in homes.items() if name != cls.__name__}
        _collect(names, module, member, others, own=cls.__name__)
        method = _method(member, homes)
        if any("@contextmanager" in line for line in method):
            names.needed_at_runtime("from contextlib import contextmanager")
        if member.name == "__await__":
            names.needed_at_runtime("from ottla.sync.twin import awaited")
        body += method
    if family.function is not None and cls is family.classes[0]:
        body += _function(family.function, names)
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


def _collect(
    names: Names,
    module: str,
    node: ast.FunctionDef | ast.AsyncFunctionDef,
    homes: dict[str, str],
    *,
    own: str = "",
) -> None:
    """The names of a signature: annotations are for type checkers, defaults are evaluated.

    Of a generator that is awaited only the result is told.
    """
    every = [*node.args.args, *node.args.kwonlyargs]
    if node.args.vararg is not None:
        every.append(node.args.vararg)
    returns = node.returns
    if node.name == "__await__" and isinstance(returns, ast.Subscript):
        assert isinstance(returns.slice, ast.Tuple)
        returns = returns.slice.elts[2]
    for annotation in [*(one.annotation for one in every), returns]:
        for found in ast.walk(annotation) if annotation is not None else ():
            if isinstance(found, ast.Name) and found.id == "AsyncIterator":
                names.add(module, ast.Name("Iterator"), runtime=False)
            elif isinstance(found, ast.Name) and found.id in homes:
                line = f"from {homes[found.id]} import {found.id}"
                if annotation is returns:
                    names.needed_at_runtime(line)
                else:
                    names.add_type(line)
            elif isinstance(found, ast.Name) and found.id != own:
                names.add(module, found, runtime=False)
    for default in [*node.args.defaults, *node.args.kw_defaults]:
        names.add(module, default, runtime=True)


def sources(family: Family) -> dict[str, str]:
    """By the path of each module below `src/ottla/sync`."""
    homes = family.homes()
    return {
        homes[cls.__name__].removeprefix("ottla.sync.").replace(".", "/") + ".py": module_source(
            cls, family
        )
        for cls in family.classes
    }


def write(target: Path) -> list[str]:
    """All twins below `target`; their names."""
    made = {name: text for family in FAMILIES for name, text in sources(family).items()}
    paths = [target / name for name in made]
    for path, text in zip(paths, made.values(), strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "--quiet", "--fix", "--select=I,F401", *paths], check=True)
    subprocess.run([*ruff, "format", "--quiet", *paths], check=True)
    return [*made]


def main() -> int:
    if "--check" not in sys.argv:
        write(SYNC)
        return 0
    # Inside the project, so that the formatter finds its settings.
    with tempfile.TemporaryDirectory(dir=SYNC) as scratch:
        stale = [
            name
            for name in write(Path(scratch))
            if (Path(scratch) / name).read_text() != (SYNC / name).read_text()
        ]
    for name in stale:
        print(f"out of date: {name}; run scripts/generate_sync.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
