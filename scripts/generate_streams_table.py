"""Write the table of what each backend can do into docs/how-to/streams.md, from the drivers.

python scripts/generate_streams_table.py            write the table
python scripts/generate_streams_table.py --check    say whether it is up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.streams.base import Operation
from ottla.streams.streamer import driver_class
from ottla.streams.types import Backend

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "streams.md"
BEGIN = "<!-- made by scripts/generate_streams_table.py -->\n"
END = "<!-- end -->\n"


def table() -> str:
    """Rows are operations, columns backends; reasons are numbered below."""
    drivers = [driver_class(backend.value) for backend in Backend]
    reasons: list[str] = []
    lines = [
        "| | " + " | ".join(backend.value.capitalize() for backend in Backend) + " |",
        "|---" * (len(drivers) + 1) + "|",
    ]
    for operation in Operation:
        cells = []
        for driver in drivers:
            reason = driver.unsupported.get(operation)
            if reason is not None and reason not in reasons:
                reasons.append(reason)
            cells.append("yes" if reason is None else f"no ({reasons.index(reason) + 1})")
        lines.append(f"| {operation.value} | " + " | ".join(cells) + " |")
    lines.append("")
    lines += [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the table as it is now."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    new = page(text)
    if "--check" in sys.argv[1:]:
        if new != text:
            print("docs/how-to/streams.md is out of date: run scripts/generate_streams_table.py")
            return 1
        return 0
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
