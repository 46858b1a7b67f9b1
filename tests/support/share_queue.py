"""A topic and a share group of a test's own, and the members it makes."""

from __future__ import annotations

from itertools import count
from typing import Any

from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.raw_client import RawClient, batch
from tests.support.share_member import ShareMember, set_group_configs

_numbers = count(1)


class Queue:
    """A topic and a group that reads it from its start."""

    def __init__(self, bootstrap: str, partitions: int = 1, **configs: str) -> None:
        number = next(_numbers)
        self.bootstrap = bootstrap
        self.topic, self.group = f"queue-{number}", f"readers-{number}"
        self.client = RawClient(bootstrap)
        self._members: list[ShareMember] = []
        self.create_topic(partitions)
        settings = {"share_auto_offset_reset": "earliest", **configs}
        set_group_configs(self.client, self.group, **settings)

    def create_topic(self, partitions: int = 1) -> None:
        topic = CreatableTopic(self.topic, partitions, -1)
        answer = self.client.ask("create_topics", 5, CreateTopicsRequest([topic], 5000))
        assert answer.topics[0].error_code == 0, answer

    def newcomer(self, **settings: Any) -> ShareMember:
        """One that has not joined yet."""
        member = ShareMember(self.bootstrap, self.group, self.topic, **settings)
        self._members.append(member)
        return member

    def member(self, **settings: Any) -> ShareMember:
        member = self.newcomer(**settings)
        member.join()
        return member

    def close(self) -> None:
        for member in self._members:
            member.client.close()
        self.client.close()

    def produce(self, records: int, *, partition: int = 0, together: bool = False) -> None:
        """Each in a batch of its own, or all in one."""
        sizes = [records] if together else [1] * records
        for size in sizes:
            values = [b"value"] * size
            assert self.client.produce(self.topic, batch(*values), partition=partition)[1] == 0
