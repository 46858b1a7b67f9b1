"""All routes of the console."""

from __future__ import annotations

from typing import Final

from starlette.routing import Route

from ottla.console.api import routes as api
from ottla.console.pages import (
    changes,
    configs,
    details,
    doctor,
    files,
    letters,
    lists,
    messages,
    nodes,
    pipelines,
    resets,
    schemas,
    searches,
    security,
    tables,
    tails,
    tier,
    transactions,
)

_TOPIC: Final = "/c/{cluster}/topics/{topic}"
_GROUP: Final = "/c/{cluster}/groups/{group}"
_QUEUE: Final = "/c/{cluster}/queues/{queue}"


def all_routes() -> list[Route]:
    """Pages of clusters, downloads, and the API."""
    return [
        *api.routes(),
        Route("/c/{cluster}/", lists.overview_page),
        Route("/c/{cluster}/topics", lists.topics_page),
        Route("/c/{cluster}/topics", changes.create_topic, methods=["POST"]),
        Route("/c/{cluster}/groups", lists.groups_page),
        Route("/c/{cluster}/queues", lists.queues_page),
        Route("/c/{cluster}/transactions", transactions.transactions_page),
        Route("/c/{cluster}/transactions/{id}", transactions.transaction_page),
        Route("/c/{cluster}/transactions/{id}/fence", transactions.fence, methods=["POST"]),
        Route("/c/{cluster}/transactions/hanging/abort", transactions.abort, methods=["POST"]),
        Route("/c/{cluster}/nodes", nodes.nodes_page),
        Route("/c/{cluster}/nodes/drain", nodes.drain, methods=["POST"]),
        Route("/c/{cluster}/nodes/move", nodes.move, methods=["POST"]),
        Route("/c/{cluster}/nodes/elect", nodes.elect, methods=["POST"]),
        Route("/c/{cluster}/tier", tier.tier_page),
        Route("/c/{cluster}/tables", tables.tables_page),
        Route("/c/{cluster}/tables/{topic}", tables.table_page),
        Route("/c/{cluster}/pipelines", pipelines.pipelines_page),
        Route("/c/{cluster}/pipelines/{pipeline}", pipelines.pipeline_page),
        Route("/c/{cluster}/schemas", schemas.schemas_page),
        Route("/c/{cluster}/schemas/{subject}", schemas.schema_page),
        Route("/c/{cluster}/schemas/change/preview", schemas.preview, methods=["POST"]),
        Route("/c/{cluster}/schemas/change/apply", schemas.apply, methods=["POST"]),
        Route("/c/{cluster}/security", security.security_page),
        Route("/c/{cluster}/security/preview", security.preview, methods=["POST"]),
        Route("/c/{cluster}/security/apply", security.apply, methods=["POST"]),
        Route("/c/{cluster}/doctor", doctor.doctor_page),
        Route("/c/{cluster}/doctor/report", doctor.report),
        Route(_TOPIC, details.topic_page),
        Route(f"{_TOPIC}/messages", messages.messages_page),
        Route(f"{_TOPIC}/messages/{{partition}}/{{offset}}", messages.record_page),
        Route(f"{_TOPIC}/messages/{{partition}}/{{offset}}/raw", messages.raw_value),
        Route(f"{_TOPIC}/download", files.download),
        Route(f"{_TOPIC}/tail", tails.tail_stream),
        Route(f"{_TOPIC}/search", searches.search_stream),
        Route(f"{_TOPIC}/produce", changes.produce_form),
        Route(f"{_TOPIC}/produce", changes.produce, methods=["POST"]),
        Route(f"{_TOPIC}/configs/preview", configs.preview, methods=["POST"]),
        Route(f"{_TOPIC}/configs/apply", configs.apply, methods=["POST"]),
        Route(f"{_TOPIC}/partitions", changes.add_partitions, methods=["POST"]),
        Route(f"{_TOPIC}/delete", changes.delete_topic, methods=["POST"]),
        Route("/c/{cluster}/groups/{group}", details.group_page),
        *_offsets(_GROUP),
        Route(_QUEUE, details.queue_page),
        Route(f"{_QUEUE}/letters", letters.letters_page),
        Route(f"{_QUEUE}/letters/redrive-preview", letters.redrive_preview, methods=["POST"]),
        Route(f"{_QUEUE}/letters/redrive", letters.redrive, methods=["POST"]),
        Route(f"{_QUEUE}/letters/stop", letters.stop, methods=["POST"]),
        Route(f"{_QUEUE}/configs/preview", configs.preview, methods=["POST"]),
        Route(f"{_QUEUE}/configs/apply", configs.apply, methods=["POST"]),
        *_offsets(_QUEUE),
        Route(f"{_QUEUE}/{{topic}}/{{partition}}", details.window_page),
    ]


def _offsets(path: str) -> list[Route]:
    """Changes that groups and queues have in common."""
    steps = {
        "reset-preview": resets.preview,
        "reset": resets.reset,
        "forget": resets.forget,
        "delete": resets.delete,
    }
    return [Route(f"{path}/{step}", work, methods=["POST"]) for step, work in steps.items()]
