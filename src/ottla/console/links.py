"""The only maker of URLs. Names become slugs; everything stays below the base path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from ottla.console.slugs import slug

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Links:
    """URLs of one cluster's pages."""

    base: str
    cluster: str
    version: str

    def _page(self, *parts: str, **query: object) -> str:
        path = "/".join(slug(part) for part in parts)
        return f"{self.base}c/{slug(self.cluster)}/{path}{_query(query)}"

    def home(self) -> str:
        return self.base

    def static(self, name: str) -> str:
        return f"{self.base}static/{name}?v={self.version}"

    def theme(self, to: str, back: str) -> str:
        return f"{self.base}theme{_query({'to': to, 'back': back})}"

    def login(self) -> str:
        return f"{self.base}login"

    def logout(self) -> str:
        return f"{self.base}logout"

    def of_cluster(self, name: str) -> str:
        return f"{self.base}c/{slug(name)}/"

    def page(self, name: str) -> str:
        """One of the pages that navigation shows."""
        return self._page() if name == "overview" else self._page(name)

    def at(self, names: tuple[str, ...]) -> str:
        """A page by the names of its path."""
        return self._page(*names)

    def overview(self) -> str:
        return self._page()

    def topics(self, **query: object) -> str:
        return self._page("topics", **query)

    def topic(self, topic: str, **query: object) -> str:
        return self._page("topics", topic, **query)

    def messages(self, topic: str, **query: object) -> str:
        return self._page("topics", topic, "messages", **query)

    def record(self, topic: str, partition: int, offset: int, **query: object) -> str:
        return self._page("topics", topic, "messages", str(partition), str(offset), **query)

    def raw(self, topic: str, partition: int, offset: int) -> str:
        return self._page("topics", topic, "messages", str(partition), str(offset), "raw")

    def produce(self, topic: str, **query: object) -> str:
        return self._page("topics", topic, "produce", **query)

    def configs(self, of: str, name: str, step: str) -> str:
        """`preview` or `apply` of a setting of a topic, or of a queue (`group`)."""
        return self._page("topics" if of == "topic" else "queues", name, "configs", step)

    def delete_topic(self, topic: str) -> str:
        return self._page("topics", topic, "delete")

    def add_partitions(self, topic: str) -> str:
        return self._page("topics", topic, "partitions")

    def offsets(self, sort: str, name: str, step: str) -> str:
        """What is done with the offsets of a `group` or a `queue`."""
        return self._page(f"{sort}s", name, step)

    def tail(self, topic: str, **query: object) -> str:
        return self._page("topics", topic, "tail", **query)

    def search(self, topic: str, **query: object) -> str:
        return self._page("topics", topic, "search", **query)

    def download(self, topic: str, **query: object) -> str:
        return self._page("topics", topic, "download", **query)

    def groups(self, **query: object) -> str:
        return self._page("groups", **query)

    def group(self, group: str, **query: object) -> str:
        return self._page("groups", group, **query)

    def queues(self, **query: object) -> str:
        return self._page("queues", **query)

    def queue(self, group: str, **query: object) -> str:
        return self._page("queues", group, **query)

    def window(self, group: str, topic: str, partition: int, **query: object) -> str:
        return self._page("queues", group, topic, str(partition), **query)

    def letters(self, group: str, **query: object) -> str:
        return self._page("queues", group, "letters", **query)

    def redrive_preview(self, group: str) -> str:
        return self._page("queues", group, "letters", "redrive-preview")

    def redrive(self, group: str) -> str:
        return self._page("queues", group, "letters", "redrive")

    def stop_redrive(self, group: str) -> str:
        return self._page("queues", group, "letters", "stop")

    def security(self, step: str) -> str:
        """`preview` or `apply` of a change."""
        return self._page("security", step)

    def schemas(self, step: str) -> str:
        """The same of schemas."""
        return self._page("schemas", "change", step)

    def nodes(self, step: str) -> str:
        """`drain`, `move` or `elect`."""
        return self._page("nodes", step)

    def transaction(self, name: str) -> str:
        return self._page("transactions", name)

    def fence(self, name: str) -> str:
        return self._page("transactions", name, "fence")

    def abort(self) -> str:
        return self._page("transactions", "hanging", "abort")

    def schema(self, subject: str, **query: object) -> str:
        return self._page("schemas", subject, **query)

    def table(self, topic: str) -> str:
        return self._page("tables", topic)

    def pipeline(self, name: str) -> str:
        return self._page("pipelines", name)

    def report(self) -> str:
        return self._page("doctor", "report")

    def api(self, *parts: str, **query: object) -> str:
        """The same as JSON."""
        path = "/".join(slug(part) for part in parts)
        return f"{self.base}api/v1/c/{slug(self.cluster)}/{path}{_query(query)}"


def _query(query: Mapping[str, object]) -> str:
    given = {key.rstrip("_"): value for key, value in query.items() if value not in (None, "")}
    return f"?{urlencode(given)}" if given else ""
