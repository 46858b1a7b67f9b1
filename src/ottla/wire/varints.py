"""Unsigned varints of messages: lengths, counts, tags."""

from __future__ import annotations

from typing import ClassVar, Final


class UvarintTable(dict[int, bytes]):
    """The encoding of any non-negative integer; small ones are cached.

    Lengths of names, arrays and small batches repeat often, lengths of large batches hardly ever.
    """

    REMEMBERED: ClassVar[int] = 4096

    __slots__ = ()

    def __missing__(self, value: int) -> bytes:
        encoded = encode_uvarint(value)
        if value < self.REMEMBERED:
            self[value] = encoded
        return encoded


def encode_uvarint(value: int) -> bytes:
    """Groups of seven bits, lowest first, each but the last with its top bit set."""
    if value < 0:
        raise ValueError(f"{value} has no unsigned varint form")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


UVARINTS: Final = UvarintTable()
