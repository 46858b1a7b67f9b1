"""All commands in one, for those who look at the whole: tests, and the reference in the docs."""

from __future__ import annotations

from ottla.cli import command_line

app = command_line()
