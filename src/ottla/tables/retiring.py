"""Tables of a deleted topic, out of the way of the one that was created under its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.tables.names import dead_letter_table

if TYPE_CHECKING:
    from ottla.tables.format import TableFormat


def retire(tables: TableFormat, table: str, topic_id: str) -> list[str]:
    """Rename the table and its dead letters if they belong to another topic id; their new names.

    The letters go first: a run that was interrupted is finished by the next one.
    """
    letters = tables.load(dead_letter_table(table))
    state = tables.load(table)
    is_old = state is not None and state.topic_id != topic_id
    named_by = state if is_old else letters
    if named_by is None:
        return []
    name = f"{table}__{named_by.changed_ms}"
    done = []
    if letters is not None and letters.topic_id != topic_id:
        tables.rename(dead_letter_table(table), dead_letter_table(name))
        done.append(dead_letter_table(name))
    if is_old:
        tables.rename(table, name)
        done.append(name)
    return done
