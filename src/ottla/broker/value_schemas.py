"""The schema of a topic's table, checked when it is set: the worker would pause the table later.

Only what needs no library is checked: the grammar of columns for JSON, and that an Avro schema is
JSON. The worker reads Protobuf, and what an Avro schema means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.errors import ApiError
from ottla.metadata.errors import InvalidConfig
from ottla.schemas.ddl_grammar import parse_columns
from ottla.schemas.model import InvalidSchema, load_json
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY: Final = "ottla.table.value.schema"
MAX_SHOWN: Final = 100
"""Characters of a schema that an error repeats."""


def check_value_schema(overrides: Mapping[str, str]) -> None:
    """INVALID_CONFIG with the place of the fault if the schema cannot be one."""
    kind = overrides.get("ottla.table.value.format", "raw").strip()
    text = overrides.get(KEY, "").strip()
    if not text or kind not in ("json", "avro"):
        return
    try:
        if kind == "json":
            parse_columns(text)
        else:
            load_json(text)
    except InvalidSchema as error:
        wanted = "columns such as 'shop string, amount double'" if kind == "json" else "Avro"
        told = InvalidConfig(f"{wanted} ({error})", repr(text[:MAX_SHOWN]), KEY)
        raise ApiError(ErrorCode.INVALID_CONFIG, str(told)) from None
