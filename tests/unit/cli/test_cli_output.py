"""Tables of the command line: names of strangers play no tricks with a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.output import print_table

if TYPE_CHECKING:
    import pytest


def test_escape_sequences_and_line_ends_are_written_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows: list[dict[str, str | None]] = [
        {"group": "g\x1b[31mred\x07", "state": "a\nb"},
        {"group": "\u202eevil", "state": None},
    ]
    print_table(rows, ["group", "state"], ["gr\x1boup", "state"])
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "\u202e" not in said
    assert [line.split() for line in said.splitlines() if line.strip(" ─")] == [
        ["gr⟨U+001B⟩oup", "state"],
        ["g⟨U+001B⟩[31mred⟨U+0007⟩", "a⟨U+000A⟩b"],
        ["⟨U+202E⟩evil", "-"],
    ]


def test_letters_of_people_stay(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"name": "Ottlá 日本 ß"}], ["name"])
    assert "Ottlá 日本 ß" in capsys.readouterr().out
