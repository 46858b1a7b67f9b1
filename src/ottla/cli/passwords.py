"""Where commands get a password from: a prompt, a file, standard input, or chance.

Never from an argument: other users of the machine see those, and shells remember them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

GENERATED_CHARACTERS: Final = 24  # 143 bits
MAX_FILE_BYTES: Final = 64 * 1024  # of a file with a password; more is some other file

PasswordFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Read the password from this file; - is standard input. Default: ask for it.",
    ),
]
Generate: TypeAlias = Annotated[
    bool, typer.Option("--generate", help="Make a random password and print it once.")
]


def password_of(file: Path | None, *, generate: bool) -> str:
    """The password; a wrong combination ends the command with status 2."""
    if generate and file is not None:
        raise typer.BadParameter("give --generate or --password-file, not both")
    if generate:
        return generated()
    if file is None:
        return _asked()
    if str(file) == "-":
        return _line(sys.stdin.readline(MAX_FILE_BYTES), "standard input")
    try:
        with file.open(encoding="utf-8") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is no text"
        raise typer.BadParameter(f"{file}: {what}", param_hint="--password-file") from None
    if len(content) > MAX_FILE_BYTES:
        raise typer.BadParameter(
            f"{file} has more than {MAX_FILE_BYTES} bytes", param_hint="--password-file"
        )
    return _line(content, str(file))


def generated() -> str:
    """A random password of letters and digits."""
    import secrets
    import string

    letters = string.ascii_letters + string.digits
    return "".join(secrets.choice(letters) for _ in range(GENERATED_CHARACTERS))


def _asked() -> str:
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "there is no terminal to ask for a password: give --password-file FILE, "
            "--password-file - for standard input, or --generate"
        )
    password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    return password


def _line(text: str, where: str) -> str:
    from ottla.security.mechanisms import MAX_PASSWORD_BYTES

    password = text.removesuffix("\n").removesuffix("\r")
    problem = None
    if not password:
        problem = "has no password"
    elif any(one < " " or one == "\x7f" for one in password):
        problem = "has several lines or control characters; a password is one line of text"
    elif len(password.encode()) > MAX_PASSWORD_BYTES:
        problem = f"has a longer password than the {MAX_PASSWORD_BYTES} bytes that PLAIN takes"
    if problem is not None:
        raise typer.BadParameter(f"{where} {problem}", param_hint="--password-file")
    return password
