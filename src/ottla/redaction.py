"""What may be printed: one function that takes secrets out of a text.

Everything that shows a URL, a setting or a driver's message to people (errors, warnings, logs,
`repr`, plans) passes it through `redact`. It knows the two shapes in which secrets travel:

- `scheme://user:password@host`, also without its scheme: the password goes, the rest stays.
- `name=value`, `name: value` and `'name': 'value'` where the name says that it is secret
  (`password`, `secret`, `token`, an access or private key, a JAAS configuration): the value goes.

A secret that stands alone, without a name before it, cannot be recognized: never log one.

`printable` is for names that clients give (of topics, groups, themselves): in a log they stay on
one line and cannot move a terminal's cursor.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
MAX_PRINTED: Final = 200

_WORDS: Final = (
    r"passw(?:or)?d|passwd|passphrase|secret|token|credential|signature|jaas"
    r"|(?:access|account|private|api|keystore|sas)[._-]?key"
)
_PLACES: Final = ("file", "env", "location", "path", "id", "type")
"""Last words of names that say where a secret is, or which one."""
_NAME: Final = re.compile(_WORDS, re.IGNORECASE)
# A password may hold any character but white space and quotes, even an unescaped @ or /.
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]*://[^\s/?#@:'\"]*:)[^\s'\"]*(?=@)", re.IGNORECASE)
# With spaces in it, too: what follows a name and a colon and is no port.
_SPACED: Final = re.compile(
    r"([a-z][a-z0-9+.-]*://[^\s/?#@:'\"]*:)(?!\d+(?:[\s/,?#:]|$)|\*\*\*@)[^'\"\n@]*(?=@)",
    re.IGNORECASE,
)
# The same without a scheme, as in a list of brokers with credentials in it.
_NODE: Final = re.compile(r"(?<![\w/])([\w.-]+:)[^\s'\"/@]+(?=@[\w.\[-])")
_VALUE: Final = (
    r"'(?:[^'\\]|\\.)*(?:'|$)"  # quoted, as in a dict's repr or libpq's syntax; perhaps not closed
    r'|"(?:[^"\\]|\\.)*(?:"|$)'
    r"|[^\s'\",;&)}\]]+"
)
# What a JAAS configuration holds is full of spaces and quotes of its own: it goes up to its end.
_JAAS: Final = re.compile(r"(jaas[\w.-]*['\"]?\s*[=:]\s*).*", re.IGNORECASE)
_PAIR: Final = re.compile(
    rf"([\w.-]*(?:{_WORDS})[\w.-]*['\"]?\s*(?:=|:(?!//))\s*)(?:{_VALUE})", re.IGNORECASE
)


def printable(text: object) -> str:
    """The text on one line, with control characters escaped, cut to `MAX_PRINTED` characters."""
    shown = str(text)[: MAX_PRINTED + 1]
    if len(shown) > MAX_PRINTED:
        shown = shown[:MAX_PRINTED] + "..."
    if shown.isprintable():
        return shown
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "backslashreplace").decode()
        for one in shown
    )


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret, rather than the place of one."""
    return _NAME.search(name) is not None and re.split(r"[._-]", name.lower())[-1] not in _PLACES


def redact(text: object) -> str:
    """The text without passwords and keys."""
    shown = _URL.sub(rf"\1{HIDDEN}", str(text))
    shown = _SPACED.sub(rf"\1{HIDDEN}", shown)
    shown = _NODE.sub(rf"\1{HIDDEN}", shown)
    shown = _JAAS.sub(rf"\1{HIDDEN}", shown)
    return _PAIR.sub(_hide, shown)


def _hide(found: re.Match[str]) -> str:
    name = re.split(r"['\"\s=:]", found[1], maxsplit=1)[0]
    return found[1] + HIDDEN if is_secret(name) else found[0]
