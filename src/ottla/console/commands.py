"""The command line twin of what a page shows or does, ready to paste into a shell."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.console.rights import QUOTAS

if TYPE_CHECKING:
    from ottla.console.rights import Change
    from ottla.console.subjects import Change as SubjectChange

_GROUPS: Final = {"group": "group", "queue": "share-group"}
_KINDS: Final = {"user": "user", "client-id": "client", "ip": "ip"}


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

    def create_topic(self) -> str:
        return self._line("topic create", "TOPIC", options=("--partitions", "N"))

    def topic(self, topic: str) -> str:
        return self._line("topic describe", topic)

    def consume(self, topic: str) -> str:
        return self._line("consume", topic, options=("--until-end",))

    def record(self, topic: str, partition: int, offset: int) -> str:
        one = ("--partition", str(partition), "--from", str(offset), "--max-records", "1")
        return self._line("consume", topic, options=one)

    def produce(self, topic: str) -> str:
        return self._line("produce", topic)

    def config(self, of: str, name: str, key: str = "KEY", value: str | None = "VALUE") -> str:
        """Of a topic, or of a queue (`group`)."""
        change = ("--unset", key) if value is None else ("--config", f"{key}={value}")
        return self._line(
            f"{'topic' if of == 'topic' else 'share-group'} alter", name, options=change
        )

    def add_partitions(self, topic: str) -> str:
        return self._line("topic alter", topic, options=("--partitions", "N"))

    def delete_topic(self, topic: str) -> str:
        return self._line("topic delete", topic)

    def reset(self, sort: str, group: str) -> str:
        return self._line(f"{_GROUPS[sort]} reset", group, options=("--to-earliest",))

    def forget(self, sort: str, group: str) -> str:
        return self._line(f"{_GROUPS[sort]} forget", group, options=("--topic", "TOPIC"))

    def delete_group(self, sort: str, group: str) -> str:
        return self._line(f"{_GROUPS[sort]} delete", group)

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

    def tier(self, *topics: str) -> str:
        return self._line("tier status", *topics)

    def rights(self, change: Change) -> str:
        """The twin of a change of ACLs, quotas or users."""
        if change.do == "user":
            return self._line("user delete", change.user)
        if change.do == "quota":
            entity = ",".join(
                _KINDS[kind] if name is None else f"{_KINDS[kind]}={_quoted(name)}"
                for kind, name in change.entity
            )
            [(key, value)] = change.values
            word = next(one for one, known in QUOTAS.items() if known == key)
            if value is None:
                return self._line("quota delete", entity, word)
            number = str(int(value)) if value.is_integer() else repr(value)
            return self._line("quota set", entity, f"{word}={number}")
        [rule] = change.acls
        star = "*" if rule.pattern == "prefixed" else ""
        what = "cluster" if rule.resource == "cluster" else f"{rule.resource}:{rule.name}{star}"
        host = ("--host", rule.host) if rule.host != "*" else ()
        verb = rule.permission if change.do == "add" else "revoke"
        names = (rule.principal, rule.operation, "on", what)
        return self._line(f"acl {verb}", *names, options=host)

    def users(self) -> str:
        return self._line("user list")

    def acls(self) -> str:
        return self._line("acl list")

    def quotas(self) -> str:
        return self._line("quota list")

    def subjects(self) -> str:
        return self._line("registry subjects")

    def add_schema(self, subject: str) -> str:
        return self._line("registry add", subject, "FILE")

    def set_level(self, subject: str) -> str:
        named = (subject,) if subject else ()
        return self._line("registry config", *named, options=("--set", "FULL"))

    def delete_subject(self, subject: str) -> str:
        return self._line("registry delete", subject)

    def subject(self, change: SubjectChange) -> str:
        """The twin of a change of schemas; a schema is in a file there."""
        if change.do == "register":
            given = [f"{name}={of}:{version}" for name, of, version in change.references]
            options = [word for one in given for word in ("--reference", one)]
            words = ("--kind", change.kind, *options)
            return self._line("registry add", change.subject, "FILE", options=words)
        if change.do == "level":
            level = ("--set", change.level) if change.level else ("--unset",)
            named = (change.subject,) if change.subject else ()
            return self._line("registry config", *named, options=level)
        version = () if change.version is None else (str(change.version),)
        return self._line("registry delete", change.subject, *version)

    def schema(self, subject: str) -> str:
        return self._line("registry show", subject)

    def nodes(self) -> str:
        return self._line("cluster status")

    def drain(self, node: int, *more: str) -> str:
        return self._line("cluster drain", str(node), options=more)

    def move(self, node: int) -> str:
        return self._line("cluster move", "TOPIC:PARTITION", str(node))

    def balance(self) -> str:
        return self._line("cluster move", options=("--balance",))

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

    def transaction(self, name: str) -> str:
        return self._line("transaction describe", name)

    def fence(self, name: str) -> str:
        return self._line("transaction abort", name)

    def hanging(self) -> str:
        return self._line("transaction find-hanging")

    def abort(self, topic: str, partition: int, start: int) -> str:
        where = ("--partition", str(partition), "--start-offset", str(start))
        return self._line("transaction abort", options=("--topic", topic, *where))


def _quoted(name: str) -> str:
    """As `ottla quota` takes a name."""
    if "," not in name and not name.startswith('"'):
        return name
    return '"' + name.replace('"', '""') + '"'
