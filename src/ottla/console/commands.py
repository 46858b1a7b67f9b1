"""The command line twin of what a page shows or does, ready to paste into a shell."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands for one cluster."""

    bootstrap: str
    command_config: str = ""

    def _line(self, command: str, *names: str, options: tuple[str, ...] = ()) -> str:
        said = ["ottla", *command.split(), *options, "--bootstrap", self.bootstrap]
        if self.command_config:
            said += ["--command-config", self.command_config]
        if any(name.startswith("-") for name in names):
            said.append("--")
        return shlex.join([*said, *names])

    def topics(self) -> str:
        return self._line("topic list")

    def topic(self, topic: str) -> str:
        return self._line("topic describe", topic)

    def consume(self, topic: str) -> str:
        return self._line("consume", topic, options=("--until-end",))

    def record(self, topic: str, partition: int, offset: int) -> str:
        one = ("--partition", str(partition), "--from", str(offset), "--max-records", "1")
        return self._line("consume", topic, options=one)

    def produce(self, topic: str) -> str:
        return self._line("produce", topic)

    def set_config(self, topic: str) -> str:
        return self._line("topic alter", topic, options=("--config", "KEY=VALUE"))

    def delete_topic(self, topic: str) -> str:
        return self._line("topic delete", topic)

    def reset(self, group: str) -> str:
        return self._line("group reset", group, options=("--to-earliest",))

    def delete_group(self, group: str) -> str:
        return self._line("group delete", group)

    def groups(self) -> str:
        return self._line("group list")

    def group(self, group: str) -> str:
        return self._line("group describe", group)

    def queues(self) -> str:
        return self._line("share-group list")

    def queue(self, group: str) -> str:
        return self._line("share-group describe", group)

    def redrive(self, group: str) -> str:
        return self._line("share-group redrive", group)

    def tier(self) -> str:
        return self._line("tier status")

    def users(self) -> str:
        return self._line("user list")

    def acls(self) -> str:
        return self._line("acl list")

    def quotas(self) -> str:
        return self._line("quota list")

    def subjects(self) -> str:
        return self._line("registry subjects")

    def schema(self, subject: str) -> str:
        return self._line("registry show", subject)

    def tables(self) -> str:
        return self._line("table status")

    def table(self, topic: str) -> str:
        return self._line("table status", topic)

    def pipelines(self) -> str:
        return self._line("top", "pipelines", options=("--once",))

    def doctor(self) -> str:
        return self._line("doctor")

    def transactions(self) -> str:
        return self._line("transaction list")
