"""Elements of SVG as text: everything that is put in is escaped."""

from __future__ import annotations

from html import escape


def number(value: float) -> str:
    """A coordinate: short, and the same on every machine."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def element(name: str, *inside: str, text: str = "", **attributes: float | str) -> str:
    """An element; attributes are named as in SVG, with `_` for `-`, and `class_`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="'
        f'{escape(value if isinstance(value, str) else number(value))}"'
        for key, value in attributes.items()
    )
    content = escape(text) + "".join(inside)
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def picture(width: float, height: float, label: str, *inside: str, class_: str) -> str:
    """A picture that scales with its box; `label` is what a screen reader says."""
    return element(
        "svg",
        *inside,
        class_=class_,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_label=label,
        preserveAspectRatio="none",
    )
