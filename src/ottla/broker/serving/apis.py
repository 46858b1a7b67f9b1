"""The APIs this broker serves: keys, versions, and where the handler of each lives.

ApiVersions answers from this table, dispatch obeys it, the docs page and the tests read it.
Handlers are named, not imported: a broker that is only asked to produce never loads the rest.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.wire.messages import message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = Callable[..., Any | Awaitable[Any] | None]


class Served(NamedTuple):
    """The versions of one API that are answered, and `module:function` below `handlers`.

    `listed_min` is what ApiVersions shows where that differs from what is answered.
    """

    min_version: int
    max_version: int
    handler: str
    listed_min: int | None = None
    chooses: bool = False
    """Whether the handler itself awaits those of its services that a request needs; otherwise all
    of them are imported before its first request."""
    foresees: str = ""
    """Function that is called for waiting requests of this API, as `handler`."""


SERVED: dict[int, Served] = {
    # librdkafka before 2.x took a listed minimum above 0 for "no compression"; Kafka lists 0 too.
    0: Served(3, 13, "produce:produce", 0, chooses=True, foresees="produce:foresee"),
    1: Served(4, 17, "fetch:fetch"),
    2: Served(1, 11, "list_offsets:list_offsets"),
    3: Served(0, 13, "metadata:metadata"),
    8: Served(2, 9, "offsets:offset_commit"),
    9: Served(1, 9, "offsets:offset_fetch"),
    10: Served(0, 6, "find_coordinator:find_coordinator", chooses=True),
    11: Served(0, 9, "groups:join_group"),
    12: Served(0, 4, "groups:heartbeat"),
    13: Served(0, 5, "groups:leave_group"),
    14: Served(0, 5, "groups:sync_group"),
    15: Served(0, 6, "groups:describe_groups"),
    16: Served(0, 5, "groups:list_groups"),
    # Version 0 is followed by raw tokens, which have no error answers.
    17: Served(1, 1, "sasl:sasl_handshake"),
    18: Served(0, 4, "api_versions:api_versions"),
    19: Served(2, 7, "topics:create_topics"),
    20: Served(1, 6, "topics:delete_topics"),
    21: Served(0, 2, "delete_records:delete_records"),
    22: Served(0, 5, "producer_ids:init_producer_id", chooses=True),
    23: Served(2, 4, "list_offsets:offset_for_leader_epoch"),
    24: Served(0, 5, "transactions:add_partitions_to_txn"),
    25: Served(0, 4, "transactions:add_offsets_to_txn"),
    26: Served(0, 5, "transactions:end_txn"),
    27: Served(1, 1, "transactions:write_txn_markers"),
    28: Served(0, 5, "offsets:txn_offset_commit"),
    29: Served(1, 3, "acls:describe_acls"),
    30: Served(1, 3, "acls:create_acls"),
    31: Served(1, 3, "acls:delete_acls"),
    32: Served(1, 4, "configs:describe_configs"),
    33: Served(0, 2, "configs:alter_configs"),
    35: Served(1, 4, "log_dirs:describe_log_dirs"),
    36: Served(0, 2, "sasl:sasl_authenticate"),
    37: Served(0, 3, "topics:create_partitions"),
    42: Served(0, 2, "groups:delete_groups"),
    43: Served(0, 2, "leadership:elect_leaders"),
    44: Served(0, 1, "configs:incremental_alter_configs"),
    45: Served(0, 1, "leadership:alter_partition_reassignments"),
    46: Served(0, 0, "leadership:list_partition_reassignments"),
    47: Served(0, 0, "offsets:offset_delete"),
    48: Served(0, 1, "client_quotas:describe_client_quotas"),
    49: Served(0, 1, "client_quotas:alter_client_quotas"),
    50: Served(0, 0, "scram_users:describe_user_scram_credentials"),
    51: Served(0, 0, "scram_users:alter_user_scram_credentials"),
    60: Served(0, 2, "cluster:describe_cluster"),
    61: Served(0, 0, "producer_ids:describe_producers"),
    64: Served(0, 0, "leadership:unregister_broker"),
    65: Served(0, 0, "transactions:describe_transactions"),
    66: Served(0, 2, "transactions:list_transactions"),
    68: Served(0, 1, "consumer_groups:consumer_group_heartbeat"),
    69: Served(0, 1, "consumer_groups:consumer_group_describe"),
    74: Served(0, 1, "configs:list_config_resources"),
    75: Served(0, 0, "metadata:describe_topic_partitions"),
    76: Served(1, 1, "share_groups:share_group_heartbeat"),
    77: Served(1, 1, "share_groups:share_group_describe"),
    78: Served(1, 2, "share_fetch:share_fetch"),
    79: Served(1, 2, "share_fetch:share_acknowledge"),
    83: Served(0, 0, "share_state:initialize_share_group_state"),
    84: Served(0, 0, "share_state:read_share_group_state"),
    85: Served(0, 1, "share_state:write_share_group_state"),
    86: Served(0, 0, "share_state:delete_share_group_state"),
    87: Served(0, 1, "share_state:read_share_group_state_summary"),
    90: Served(0, 1, "share_offsets:describe_share_group_offsets"),
    91: Served(0, 0, "share_offsets:alter_share_group_offsets"),
    92: Served(0, 0, "share_offsets:delete_share_group_offsets"),
}


def handler_of(api_key: int) -> Handler:
    return _function(SERVED[api_key].handler)


def foresight_of(api_key: int) -> Handler | None:
    name = SERVED[api_key].foresees
    return _function(name) if name else None


def _function(name: str) -> Handler:
    module, _, function = name.partition(":")
    found: Handler = getattr(import_module(f"ottla.broker.handlers.{module}"), function)
    return found


def load(api_key: int) -> None:
    """Import what serving an API takes: messages and handler. Blocks."""
    message(api_key, request=True)
    message(api_key, request=False)
    handler_of(api_key)


@cache
def services_of(handler: Handler) -> tuple[str, ...]:
    """The names of the services that a handler takes after context and request."""
    return tuple(signature(handler).parameters)[2:]
