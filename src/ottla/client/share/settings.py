"""A share consumer's settings: their defaults, what they may be, and the one the group keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from ottla.client import arguments
from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.share import ShareGroupCalls
from ottla.client.admin.types import ConfigSource
from ottla.client.errors import BadArgument, KafkaError
from ottla.client.share.session import Limits
from ottla.client.share.types import AckMode, AcquireMode, EmptyGroupId

if TYPE_CHECKING:
    from ottla.client.cluster.cluster import Client

MAX_POLL_RECORDS: Final = 500
# Columns are for bulk. Brokers have a limit of their own, the records that may be locked at once.
MAX_COLUMN_RECORDS: Final = 10_000
MAX_BYTES: Final = 50 * 1024 * 1024  # fetch.max.bytes of Kafka's clients
MAX_WAIT: Final = 0.5  # fetch.max.wait.ms
CLOSE_TIMEOUT: Final = 5.0

OFFSET_RESET: Final = "share.auto.offset.reset"
DELIVERY_LIMIT: Final = "share.delivery.count.limit"
USUAL_DELIVERY_LIMIT: Final = 5  # where it is a setting of brokers alone


class PollLimits(NamedTuple):
    """How much a poll may bring, as records and as columns, and how long a fetch may wait."""

    records: Limits
    columns: Limits
    max_wait: float


def poll_limits(
    max_poll_records: int | None, max_bytes: int, max_wait: float, *, strict: bool
) -> PollLimits:
    """The limits of polls, from the caller's settings and the defaults."""
    records = Limits(max_poll_records or MAX_POLL_RECORDS, max_bytes, strict=strict)
    columns = records
    if max_poll_records is None and not strict:
        columns = records._replace(max_records=MAX_COLUMN_RECORDS)
    return PollLimits(records, columns, max_wait)


def check_settings(
    *,
    group: str,
    ack_mode: str,
    acquire_mode: str,
    auto_offset_reset: str | None,
    close_implicit: str,
    max_poll_records: int | None,
    max_bytes: int,
    max_wait: float,
    auto_renew: bool,
    on_acknowledge: object,
    rack: str | None,
    request_timeout: float,
) -> None:
    """Raise `BadArgument` for the first that cannot be."""
    arguments.choice("ack_mode", ack_mode, get_args(AckMode))
    arguments.choice("acquire_mode", acquire_mode, get_args(AcquireMode))
    arguments.choice("close_implicit", close_implicit, ("accept", "release"))
    if group == "":
        raise EmptyGroupId('the group has no name; give group=, such as group="orders-workers"')
    arguments.text("group", group)
    arguments.optional_text(
        "auto_offset_reset", auto_offset_reset, '"earliest", "latest" or "by_duration:..."'
    )
    arguments.optional_whole("max_poll_records", max_poll_records, 1)
    arguments.whole("max_bytes", max_bytes, 1)
    arguments.flag("auto_renew", auto_renew)
    arguments.optional_function("on_acknowledge", on_acknowledge)
    arguments.optional_text("rack", rack)
    arguments.seconds("request_timeout", request_timeout)
    arguments.seconds("max_wait", max_wait)
    if max_wait >= request_timeout:
        raise BadArgument(
            f"max_wait: expected less than request_timeout ({request_timeout:g}), got {max_wait:g}"
        )


class GroupSettings(NamedTuple):
    """A group's configuration, and whether the group has start offsets."""

    delivery_limit: int
    offset_reset: str
    is_new: bool


async def group_settings(client: Client, group: str) -> GroupSettings:
    """Ask for the settings of a group; old brokers do not have all of them."""
    keys = [OFFSET_RESET, DELIVERY_LIMIT]
    entries = await ConfigCalls(client).describe_configs("group", group, keys)
    found = {one.name: one.value for one in entries}
    try:
        offsets = await ShareGroupCalls(client).list_share_group_offsets(group)
    except KafkaError:  # there is no such group yet
        offsets = []
    return GroupSettings(
        int(found.get(DELIVERY_LIMIT) or USUAL_DELIVERY_LIMIT),
        found.get(OFFSET_RESET) or "latest",
        not any(one.start_offset is not None for one in offsets),
    )


async def set_offset_reset(client: Client, group: str, reset: str) -> None:
    """Write where a group starts to its configuration, where that says nothing yet."""
    configs = ConfigCalls(client)
    found = await configs.describe_configs("group", group, [OFFSET_RESET])
    if not any(one.name == OFFSET_RESET and one.source is ConfigSource.GROUP for one in found):
        await configs.alter_configs("group", group, {OFFSET_RESET: reset})
