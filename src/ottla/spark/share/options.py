"""Options of the share source: `shareGroup` and its family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ottla.spark.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping

OnStop = Literal["hold", "release"]

NAMES: Final = (
    *("shareGroup", "share.memberId", "share.maxRecords", "share.renew", "share.onStop"),
    "share.verdicts",
)
DELIVERY_COUNT: Final = "deliveryCount"
"""The column that queries on share groups have beside those of the log."""
TOPIC_PREFIX: Final = "topic:"
MAX_RECORDS: Final = 1_000_000
MAX_MEMBER_ID: Final = 36  # of the protocol

# Options for positions in a log; a group has its own position.
_OF_THE_LOG: Final = (
    *("assign", "subscribePattern", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("offsetsGroup", "offsetStore", "onSettled", "minOffsetsPerTrigger"),
)


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """Settings of a member of a share group."""

    group: str
    member_id: str | None
    max_records: int
    renews: bool
    on_stop: OnStop
    verdicts: str | None
    reset: str | None

    @property
    def verdict_topic(self) -> str | None:
        """The topic of the verdicts; None if they are in files."""
        if self.verdicts is None or not self.verdicts.startswith(TOPIC_PREFIX):
            return None
        return self.verdicts.removeprefix(TOPIC_PREFIX)


def parse_share(given: Mapping[str, str], *, is_batch: bool) -> ShareOptions | None:
    """The options, by names in lower case; None for a query on the log."""
    group = given.get("sharegroup")
    if group is None:
        for name in NAMES:
            if name.lower() in given:
                raise BadOption(f"{name} is for share groups: give shareGroup too")
        return None
    if not group:
        raise BadOption("shareGroup is empty: give the name of a group")
    if is_batch:
        raise BadOption(
            "shareGroup is for streaming queries, which accept what they have processed; "
            "use readStream, or leave shareGroup out to read the log"
        )
    for name in _OF_THE_LOG:
        if name.lower() in given:
            raise BadOption(f"{name} cannot be used with shareGroup: give subscribe=topic,topic")
    if "maxbytespertrigger" in given:
        raise BadOption(
            "maxBytesPerTrigger cannot be used with shareGroup, which counts records: give "
            "share.maxRecords"
        )
    member_id = given.get("share.memberid")
    if member_id is not None and not 1 <= len(member_id) <= MAX_MEMBER_ID:
        raise BadOption(f"share.memberId is a name of 1 to {MAX_MEMBER_ID} characters")
    return ShareOptions(
        group,
        member_id,
        _number(given.get("share.maxrecords", str(MAX_RECORDS))),
        _choice(given, "share.renew", ("auto", "false")) == "auto",
        _choice(given, "share.onStop", ("hold", "release")),  # type: ignore[arg-type]  # of these
        _verdicts(given.get("share.verdicts")),
        _reset(given.get("startingoffsets")),
    )


def _verdicts(text: str | None) -> str | None:
    if text is not None and not text.removeprefix(TOPIC_PREFIX).strip():
        raise BadOption("share.verdicts names nothing: give a file, a directory or topic:NAME")
    return text


def _number(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise BadOption(f"share.maxRecords is a whole number of 1 or more, not {text!r}")
    return int(text)


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = given.get(name.lower(), choices[0]).lower()
    if value not in choices:
        raise BadOption(f"{name} is {' or '.join(choices)}, not {value!r}")
    return value


def _reset(text: str | None) -> str | None:
    if text is None or text.lower() in ("earliest", "latest"):
        return None if text is None else text.lower()
    raise BadOption(
        f"startingOffsets is earliest or latest with shareGroup, not {text[:50]!r}: it is where a "
        "new group starts"
    )
