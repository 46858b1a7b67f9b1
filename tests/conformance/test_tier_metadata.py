"""Kafka's own tool reads the events of the remote log metadata that Ottla writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.log.checkpoints import encode_id
from ottla.tier.codec import encode_event
from ottla.tier.segments import (
    MetadataEvent,
    PartitionDeleteState,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from ottla.wire.builder import BatchBuilder
from tests.support.jvm import run_tool, why_no_jvm
from tests.support.tiering import TIP, TOPIC_ID, becomes, segment

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(why_no_jvm() is not None, reason=str(why_no_jvm()))


def test_case_60_kafka_decodes_every_kind_of_event(tmp_path: Path) -> None:
    one = segment(1000, 1999, epochs={2: 1000, 4: 1500}, number=1 << 100, size=65536)
    whole = segment(2000, 2999, number=1 << 101, txn_index_empty=False, custom=bytes(128))
    events: list[MetadataEvent] = [
        one,
        whole,
        *(becomes(one, state, b"\xc0\xff\xee") for state in list(SegmentState)[1:]),
        *(RemotePartitionDeleteMetadata(TIP, state, 7, 5) for state in PartitionDeleteState),
    ]
    builder = BatchBuilder()
    for event in events:
        builder.append(encode_event(event), timestamp=1_700_000_000_000)
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(builder.build())
    said = run_tool(
        "kafka-dump-log", "--remote-log-metadata-decoder", "--files", str(log), bootstrap=None
    ).stdout
    lines = [line for line in said.splitlines() if line.startswith("|")]
    payloads = [line.partition("payload: ")[2] for line in lines]
    assert len(payloads) == len(events)
    kinds = [payload.partition("{")[0] for payload in payloads]
    assert kinds == (
        ["RemoteLogSegmentMetadata"] * 2
        + ["RemoteLogSegmentMetadataUpdate"] * 3
        + ["RemotePartitionDeleteMetadata"] * 3
    )
    for payload in payloads:
        assert f"{encode_id(TOPIC_ID)}:clicks-3" in payload
    assert "startOffset=1000, endOffset=1999" in payloads[0]
    assert "{2=1000, 4=1500}" in payloads[0]
    assert "txnIdxEmpty=true" in payloads[0]
    assert "txnIdxEmpty=false" in payloads[1]
    for payload, state in zip(payloads[2:5], list(SegmentState)[1:], strict=True):
        assert state.name in payload
    for payload, deleting in zip(payloads[5:], PartitionDeleteState, strict=True):
        assert deleting.name in payload
