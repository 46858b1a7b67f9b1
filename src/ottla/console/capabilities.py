"""What a cluster can do, in words, from the APIs that it serves. Pure.

Navigation shows what is there; a link to something else gets `explain`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARE_GROUPS: Final = "share_groups"
SHARE_WINDOWS: Final = "share_windows"
TRANSACTIONS: Final = "transactions"
LOG_DIRS: Final = "log_dirs"
TIER: Final = "tier"
TELEMETRY: Final = "telemetry"
NODES: Final = "nodes"
CATALOGUE: Final = "catalogue"
TABLES: Final = "tables"
PIPELINES: Final = "pipelines"
REGISTRY: Final = "registry"
ACLS: Final = "acls"

ONLY_OTTLA: Final = "only Ottla tells who holds which record of a queue"

SHARE_FEATURE: Final = "share.version"
NOT_TOLD: Final[Mapping[str, int]] = MappingProxyType({})

# The API that a word needs, its lowest version, and the first release of Kafka that has it.
_APIS: Final[Mapping[str, tuple[int, int, str]]] = {
    SHARE_GROUPS: (77, 0, "share groups exist since Kafka 4.2, with the feature share.version"),
    TRANSACTIONS: (66, 0, "transactions can be listed since Kafka 3.0"),
    LOG_DIRS: (35, 1, "sizes of logs can be asked for since Kafka 1.0"),
    TIER: (2, 9, "the borders of tiers can be asked for since Kafka 3.9"),
    ACLS: (29, 1, "rights can be listed since Kafka 2.0"),
    TELEMETRY: (71, 0, "clients push their metrics since Kafka 3.7, with a plug-in"),
}
_OTHERS: Final[Mapping[str, str]] = {
    SHARE_WINDOWS: ONLY_OTTLA,
    NODES: "the cluster has one node",
    CATALOGUE: "no topic __remote_log_metadata: remote.log.storage.system.enable is off",
    TABLES: "no topic has a table: set ottla.table.enable=true on one and run ottla table run",
    PIPELINES: "no topic ottla.pipelines; after `ottla topic create ottla.pipelines --partitions 1 "
    "--config cleanup.policy=compact,delete --config retention.ms=604800000` each `ottla run` "
    "tells it what its pipeline does",
    REGISTRY: "no schema registry is known: start the broker with --registry, or set registry",
}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The words that hold, and the reason for each that does not."""

    has: frozenset[str]

    def __contains__(self, word: str) -> bool:
        return word in self.has

    def explain(self, word: str) -> str | None:
        """Why the cluster does not have it; None if it has."""
        if word in self.has:
            return None
        return _APIS[word][2] if word in _APIS else _OTHERS[word]


def capabilities(
    versions: Mapping[int, tuple[int, int]],
    features: Mapping[str, int] = NOT_TOLD,
    *,
    nodes: int,
    has_windows: bool,
    has_catalogue: bool,
    has_tables: bool,
    has_pipelines: bool,
    has_registry: bool,
) -> Capabilities:
    """From versions of APIs, levels of features, and what was found in the cluster."""
    found = {
        word
        for word, (api, least, _) in _APIS.items()
        if api in versions and versions[api][1] >= least
    }
    if features and not features.get(SHARE_FEATURE):
        # Brokers list the API all the same, and refuse it.
        found.discard(SHARE_GROUPS)
    if has_windows:
        found.add(SHARE_WINDOWS)
    if nodes > 1:
        found.add(NODES)
    if has_catalogue:
        found.add(CATALOGUE)
    if has_tables:
        found.add(TABLES)
    if has_pipelines:
        found.add(PIPELINES)
    if has_registry:
        found.add(REGISTRY)
    return Capabilities(frozenset(found))
