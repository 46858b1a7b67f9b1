"""alter_client_quotas, API key 49. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class RequestEntityData(NamedTuple):
    entity_type: str = ""
    entity_name: str | None = ""


class OpData(NamedTuple):
    key: str = ""
    value: float = 0.0
    remove: bool = False


class RequestEntryData(NamedTuple):
    entity: Sequence[RequestEntityData] = ()
    ops: Sequence[OpData] = ()


class AlterClientQuotasRequest(NamedTuple):
    entries: Sequence[RequestEntryData] = ()
    validate_only: bool = False


ALTER_CLIENT_QUOTAS_REQUEST = Message(
    49,
    True,
    AlterClientQuotasRequest,
    (0, 1),
    1,
    {
        RequestEntityData: (
            Field("entity_type", "string"),
            Field("entity_name", "string", nullable=ALWAYS),
        ),
        OpData: (
            Field("key", "string"),
            Field("value", "float64"),
            Field("remove", "bool"),
        ),
        RequestEntryData: (
            Field("entity", RequestEntityData, array=True),
            Field("ops", OpData, array=True),
        ),
        AlterClientQuotasRequest: (
            Field("entries", RequestEntryData, array=True),
            Field("validate_only", "bool"),
        ),
    },
)


class ResponseEntityData(NamedTuple):
    entity_type: str = ""
    entity_name: str | None = ""


class ResponseEntryData(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    entity: Sequence[ResponseEntityData] = ()


class AlterClientQuotasResponse(NamedTuple):
    throttle_time_ms: int = 0
    entries: Sequence[ResponseEntryData] = ()


ALTER_CLIENT_QUOTAS_RESPONSE = Message(
    49,
    False,
    AlterClientQuotasResponse,
    (0, 1),
    1,
    {
        ResponseEntityData: (
            Field("entity_type", "string"),
            Field("entity_name", "string", nullable=ALWAYS),
        ),
        ResponseEntryData: (
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("entity", ResponseEntityData, array=True),
        ),
        AlterClientQuotasResponse: (
            Field("throttle_time_ms", "int32"),
            Field("entries", ResponseEntryData, array=True),
        ),
    },
)
