"""All commands in one app, for tests and for the reference in the docs."""

from __future__ import annotations

from ottla.cli import command_line

app = command_line()
