"""Notes of logs on their way."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.handover import MAX_NOTE_BYTES, DamagedNote, Note, decode_note

OFFSETS = st.integers(0, 2**63 - 1)
NOTE = Note(UUID(int=7), 3, 10, 10, 2, 5, clean=True)


@given(
    st.builds(
        Note,
        st.uuids(),
        st.integers(0, 2**31 - 1),
        OFFSETS,
        OFFSETS,
        OFFSETS,
        OFFSETS,
        st.booleans(),
    )
)
def test_a_note_survives(note: Note) -> None:
    assert decode_note(note.encode()) == note


@given(st.integers(0, len(NOTE.encode()) - 1))
def test_a_note_that_was_cut_is_refused(length: int) -> None:
    with pytest.raises(DamagedNote):
        decode_note(NOTE.encode()[:length])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", 2),
        ("topic_id", 5),
        ("topic_id", "x"),
        ("clean", 1),
        ("log_start_offset", -1),
        ("log_start_offset", True),
        ("log_start_offset", "3"),
        ("more", 1),
    ],
)
def test_a_wrong_field_is_refused(field: str, value: object) -> None:
    values = json.loads(NOTE.encode())
    values[field] = value
    with pytest.raises(DamagedNote, match=r"handover\.json"):
        decode_note(json.dumps(values).encode())


@pytest.mark.parametrize(
    "data", [b"[]", b"null", b"\xff", b"[" * 4000, b" " * (MAX_NOTE_BYTES + 1), b"{}"]
)
def test_junk_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedNote):
        decode_note(data)
