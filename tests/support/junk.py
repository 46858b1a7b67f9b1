"""The public calls of the clients: what they need, and wrong arguments of every kind for them."""

from __future__ import annotations

import inspect
import math
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from ottla import ProducerRecord, TopicPartition
from ottla.client.share.types import ShareRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# No number here is a sensible waiting time that would have to be waited for.
NUMBERS = [-(2**40), -1, 0, 1, 2**31, 2**63, 2**70]
FLOATS = [math.nan, math.inf, -math.inf, -0.5, 0.25, 1e300]
TEXTS = ["", "x", "\ud800", "\x00", "x" * 40_000, "ünïcode name"]
OTHERS = [None, True, b"", b"bytes", bytearray(2), 1j, object(), int, len, Path("x")]
TIMES = [datetime(1960, 1, 1), datetime(2026, 1, 1)]  # without a zone

_scalars = st.sampled_from([*NUMBERS, *FLOATS, *TEXTS, *OTHERS, *TIMES])
_keys = st.sampled_from([*NUMBERS, *FLOATS, *TEXTS, ("x", 0), ("x",), ("x", -1), (1, "x"), None])
values = st.one_of(
    _scalars,
    st.lists(_scalars, max_size=3),
    st.tuples(_scalars, _scalars),
    st.lists(st.tuples(_scalars, _scalars), max_size=2),
    st.dictionaries(_keys, _scalars, max_size=2),
)

ROWS = pa.table({"key": [b"k"], "value": [b"v"]})
OFFSETS = {("good", 0): 0}
A_RECORD = ShareRecord("good", 0, 0, 0, 0, None, b"v", (), 1, 1)

# What else a call needs, beside the argument that is wrong.
NEEDS: dict[str, dict[str, Any]] = {
    "Producer.send": {"topic": "good", "value": b"v"},
    "Producer.send_many": {"topic": "good", "records": [ProducerRecord(b"v")]},
    "Producer.send_arrow": {"topic": "good", "data": ROWS},
    "Transaction.send_offsets": {"group": "g", "offsets": {TopicPartition("good", 0): 0}},
    "Consumer.commit": {},
    "Consumer.committed": {},
    "Consumer.pause": {},
    "Consumer.poll": {"timeout": 0},
    "Consumer.resume": {},
    "Consumer.seek": {"partition": TopicPartition("good", 0), "to": "latest"},
    "Consumer.subscribe": {},
    "Reader.read_many": {},
    "Reader.seek": {},
    "ShareConsumer.acknowledge": {"what": A_RECORD},
    "ShareConsumer.commit": {},
    "ShareConsumer.poll": {"timeout": 0},
    "ShareConsumer.poll_arrow": {"timeout": 0},
    "ShareConsumer.subscribe": {},
    "ShareConsumer.take": {"most": 1, "timeout": 0},
    "Admin.abort_transaction": {"topic": "good", "partition": 0, "start_offset": 0},
    "Admin.alter_configs": {"kind": "topic", "name": "good", "configs": {"retention.ms": "60000"}},
    "Admin.alter_group_offsets": {"group": "g", "offsets": OFFSETS},
    "Admin.alter_quotas": {"entity": {"user": "u"}, "values": {"producer_byte_rate": 1e9}},
    "Admin.alter_share_group_offsets": {"group": "s", "offsets": OFFSETS},
    "Admin.create_partitions": {"topic": "good", "total": 1},
    "Admin.create_acls": {"acls": []},
    "Admin.create_topic": {"name": "another"},
    "Admin.create_user": {"name": "u", "password": "secret", "iterations": 4096},
    "Admin.delete_acls": {"name": "good"},
    "Admin.delete_group": {},
    "Admin.delete_group_offsets": {"group": "g", "partitions": []},
    "Admin.delete_groups": {"names": []},
    "Admin.delete_records": {},
    "Admin.delete_share_group": {},
    "Admin.delete_share_group_offsets": {"group": "s", "topics": []},
    "Admin.delete_share_groups": {"names": []},
    "Admin.delete_topic": {},
    "Admin.delete_topics": {"names": []},
    "Admin.delete_user": {"name": "u"},
    "Admin.describe_acls": {},
    "Admin.describe_configs": {"kind": "topic", "name": "good"},
    "Admin.describe_groups": {},
    "Admin.describe_producers": {},
    "Admin.describe_quotas": {},
    "Admin.describe_share_groups": {},
    "Admin.describe_share_windows": {"group": "s"},
    "Admin.describe_topics": {"names": ["good"]},
    "Admin.describe_transactions": {},
    "Admin.describe_users": {},
    "Admin.elect_leaders": {},
    "Admin.fence_producer": {},
    "Admin.find_hanging_transactions": {"of": ["good"]},
    "Admin.forget_node": {"node": 9},
    "Admin.list_groups": {},
    "Admin.list_group_offsets": {},
    "Admin.list_group_offsets_of": {"groups": ["g"]},
    "Admin.list_offsets": {"of": ["good"]},
    "Admin.list_share_group_offsets": {},
    "Admin.list_topics": {},
    "Admin.list_transactions": {},
    "Admin.plan_offset_reset": {"group": "g", "to": "latest", "topics": ["good"]},
    "Admin.plan_share_offset_reset": {"group": "s", "to": "latest", "topics": ["good"]},
    "Admin.reassign_partitions": {"replicas": {("good", 0): [1]}},
}


class Spot(NamedTuple):
    """One parameter of one public call."""

    call: str
    parameter: str


def public_calls(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The methods that a user may call."""
    for name, found in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            yield f"{kind.__name__}.{name}", found


def spots(*kinds: type) -> list[Spot]:
    """Every parameter of every public method of these classes."""
    return [
        Spot(name, parameter)
        for kind in kinds
        for name, function in public_calls(kind)
        for parameter in list(inspect.signature(function).parameters)[1:]
    ]


def parameters(function: Callable[..., Any]) -> list[str]:
    """The names of a function's parameters, without those that catch all."""
    return [
        one.name
        for one in inspect.signature(function).parameters.values()
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and one.name != "self"
    ]
