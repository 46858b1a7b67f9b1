"""What a preview shows travels in its form, signed: it is done as it was shown, or not at all."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from typing import Any

from ottla.console.problem import Refused


def sealed(secret: bytes, kind: str, of: str, value: object) -> str:
    """A value for a form; `kind` and `of` say what it is for."""
    body = json.dumps([kind, of, value]).encode()
    mark = hmac.new(secret, body, hashlib.sha256).hexdigest()
    return f"{mark}.{base64.urlsafe_b64encode(body).decode()}"


def opened(secret: bytes, kind: str, of: str, text: str) -> Any:
    """The value again; raises if it is not ours, or was made for something else."""
    mark, _, encoded = text.partition(".")
    try:
        body = base64.urlsafe_b64decode(encoded)
    except (binascii.Error, ValueError):
        body = b""
    right = hmac.new(secret, body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(mark.encode(), right.encode()):
        raise Refused(409, "The preview is not valid any more; make another one.")
    found, name, value = json.loads(body)
    if (found, name) != (kind, of):
        raise Refused(409, f"The preview is of another {kind}; make another one.")
    return value
