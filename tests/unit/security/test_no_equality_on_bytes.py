"""Case 27: nothing in the security room compares bytes by `==`, whose time tells where they differ.

Types are not known to a test that reads source, so it allows what cannot be a secret: comparisons
with a literal text or number, with a length, and with a constant in capitals.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ottla.security

ROOM = Path(ottla.security.__file__).parent
TEXTS = {"name", "_name", "issuer", "subject", "tag"}


def _is_harmless(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str() | int() | float() | None):
            return True
        case ast.Call(func=ast.Name(id="len" | "int" | "str" | "type" | "ip_address")):
            return True
        case ast.Call(func=ast.Attribute(attr="public_key")):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper() or name in TEXTS
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(map(_is_harmless, parts))
    return False


def suspects(source: str) -> list[str]:
    """Comparisons for equality that may be of bytes."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and any(isinstance(one, ast.Eq | ast.NotEq) for one in node.ops)
        and not any(map(_is_harmless, (node.left, *node.comparators)))
    ]


@pytest.mark.parametrize("file", sorted(ROOM.rglob("*.py")), ids=lambda path: path.stem)
def test_no_equality_on_bytes_case_27(file: Path) -> None:
    assert suspects(file.read_text()) == [], "use hmac.compare_digest"


def test_the_rule_finds_what_it_should() -> None:
    assert suspects("proof == expected") == ["proof == expected"]
    assert suspects("if b'x' != token: pass") == ["b'x' != token"]
    assert not suspects("state == OPEN or len(x) == n or kind == 'PEM' or version != 3")
