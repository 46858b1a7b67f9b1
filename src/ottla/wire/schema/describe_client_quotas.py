"""describe_client_quotas, API key 48. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class ComponentData(NamedTuple):
    entity_type: str = ""
    match_type: int = 0
    match: str | None = ""


class DescribeClientQuotasRequest(NamedTuple):
    components: Sequence[ComponentData] = ()
    strict: bool = False


DESCRIBE_CLIENT_QUOTAS_REQUEST = Message(
    48,
    True,
    DescribeClientQuotasRequest,
    (0, 1),
    1,
    {
        ComponentData: (
            Field("entity_type", "string"),
            Field("match_type", "int8"),
            Field("match", "string", nullable=ALWAYS),
        ),
        DescribeClientQuotasRequest: (
            Field("components", ComponentData, array=True),
            Field("strict", "bool"),
        ),
    },
)


class EntityData(NamedTuple):
    entity_type: str = ""
    entity_name: str | None = ""


class ValueData(NamedTuple):
    key: str = ""
    value: float = 0.0


class EntryData(NamedTuple):
    entity: Sequence[EntityData] = ()
    values: Sequence[ValueData] = ()


class DescribeClientQuotasResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    entries: Sequence[EntryData] | None = ()


DESCRIBE_CLIENT_QUOTAS_RESPONSE = Message(
    48,
    False,
    DescribeClientQuotasResponse,
    (0, 1),
    1,
    {
        EntityData: (
            Field("entity_type", "string"),
            Field("entity_name", "string", nullable=ALWAYS),
        ),
        ValueData: (
            Field("key", "string"),
            Field("value", "float64"),
        ),
        EntryData: (
            Field("entity", EntityData, array=True),
            Field("values", ValueData, array=True),
        ),
        DescribeClientQuotasResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("entries", EntryData, array=True, nullable=ALWAYS),
        ),
    },
)
