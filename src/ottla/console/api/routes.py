"""`/api/v1`: the view models of the pages as JSON, by the same names.

Numbers are numbers, times RFC 3339 in UTC, durations seconds; what is missing is
`{"missing": reason}`. Fields are only added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ottla.console.api.changes import CHANGED
from ottla.console.api.changes import routes as change_routes
from ottla.console.api.openapi import document
from ottla.console.api.series import series_view
from ottla.console.app import console_of
from ottla.console.attention import Attention
from ottla.console.decode.mask import rules_of
from ottla.console.decode.reading import Decoder
from ottla.console.filter import BadWhere
from ottla.console.missing import Missing
from ottla.console.pages.details import watch_group, watch_queue, watch_topic, window_view
from ottla.console.pages.doctor import doctor_view
from ottla.console.pages.letters import letters_view
from ottla.console.pages.messages import Asked, check_topic, query_of, read_page
from ottla.console.pages.nodes import nodes_view
from ottla.console.pages.pipelines import pipeline_view, pipelines_view
from ottla.console.pages.schemas import NoSubject, schema_view, schemas_view
from ottla.console.pages.security import security_view
from ottla.console.pages.shared import table_query
from ottla.console.pages.tables import table_view, tables_view
from ottla.console.pages.tier import tier_view
from ottla.console.pages.transactions import transaction_view, transactions_view
from ottla.console.plain import plain
from ottla.console.problem import Refused
from ottla.console.query import MAX_ROWS, ROWS, BadPlace, write_cut
from ottla.console.slugs import unslug
from ottla.console.snapshot import WATCHED_KINDS, Kind
from ottla.console.views import (
    doctor,
    group,
    groups,
    letters,
    nodes,
    overview,
    pipelines,
    queue,
    queues,
    schemas,
    security,
    series,
    tables,
    tier,
    topic,
    topics,
    transactions,
)
from ottla.console.views.messages import line

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.console.guard import Handler

NDJSON: Final = "application/x-ndjson"
NO_TOPIC: Final = "The cluster has no topic of this name."
NO_QUEUE: Final = "The cluster has no queue of this name."


def _json(view: object) -> Response:
    # A page of 10,000 partitions is large, and the standard library takes ten times as long.
    return Response(msgspec.json.encode(plain(view)), media_type="application/json")


async def overview_json(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    await watched.fresh(*WATCHED_KINDS)
    return _json(overview.page(watched.look(), watched.attention()))


async def attention_json(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    await watched.fresh(*WATCHED_KINDS)
    return _json(watched.attention())


async def topics_json(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    await watched.fresh(Kind.CLUSTER, Kind.GROUPS, Kind.LOG_DIRS, Kind.SETTINGS)
    return _json(topics.page(watched.look(), watched.attention(), table_query(request)))


async def topic_json(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["topic"])
    await watch_topic(watched, name)
    page = topic.page(watched.look(), watched.attention(), name, table_query(request))
    if not page.found:
        raise Refused(404, NO_TOPIC)
    return _json(page)


async def groups_json(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    await watched.fresh(Kind.CLUSTER, Kind.GROUPS)
    return _json(groups.page(watched.look(), watched.attention(), table_query(request)))


async def group_json(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["group"])
    await watch_group(watched, name)
    page = group.page(watched.look(), watched.attention(), name, table_query(request, rows=200))
    if not page.found:
        raise Refused(404, "The cluster has no consumer group of this name.")
    return _json(page)


async def queues_json(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    await watched.fresh(Kind.CLUSTER, Kind.GROUPS)
    return _json(queues.page(watched.look(), watched.attention(), table_query(request)))


async def queue_json(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["queue"])
    await watch_queue(watched, name)
    page = queue.page(watched.look(), watched.attention(), name)
    if not page.found:
        raise Refused(404, NO_QUEUE)
    return _json(page)


async def letters_json(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["queue"])
    await watch_queue(watched, name)
    if not queue.page(watched.look(), watched.attention(), name).found:
        raise Refused(404, NO_QUEUE)
    return _json(await letters_view(request))


async def security_json(request: Request) -> Response:
    return _json(await security_view(request))


async def schemas_json(request: Request) -> Response:
    return _json(await schemas_view(request))


async def schema_json(request: Request) -> Response:
    page = await schema_view(request)
    if isinstance(page.versions, NoSubject):
        raise Refused(404, page.versions.reason)
    return _json(page)


async def tables_json(request: Request) -> Response:
    return _json(await tables_view(request))


async def table_json(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page = await table_view(request)
    if page.row is None and page.topic not in watched.look().data.topics:
        raise Refused(404, NO_TOPIC)
    return _json(page)


async def pipelines_json(request: Request) -> Response:
    return _json(await pipelines_view(request))


async def pipeline_json(request: Request) -> Response:
    page = await pipeline_view(request)
    if page.row is None:
        raise Refused(404, page.problem)
    return _json(page)


async def tier_json(request: Request) -> Response:
    return _json(await tier_view(request))


async def doctor_json(request: Request) -> Response:
    return _json(await doctor_view(request))


async def series_json(request: Request) -> Response:
    return _json(await series_view(request))


async def window_json(request: Request) -> Response:
    page = await window_view(request)
    if isinstance(page.window, Missing):
        raise Refused(404, page.window.reason)
    return _json(page)


async def transactions_json(request: Request) -> Response:
    return _json(await transactions_view(request))


async def transaction_json(request: Request) -> Response:
    page = await transaction_view(request)
    if page.row is None:
        raise Refused(404, "No coordinator knows a transactional id of this name.")
    return _json(page)


async def nodes_json(request: Request) -> Response:
    return _json(await nodes_view(request))


async def messages_json(request: Request) -> Response:
    """A line for each record; the header `ottla-next` says where the next page begins."""
    console = console_of(request)
    watched = console.cluster(request)
    name = unslug(request.path_params["topic"])
    rules = rules_of(console.cluster_settings(watched.name), name)
    if rules.hidden:
        raise Refused(403, "The contents of this topic are not given out: the settings hide them.")
    await check_topic(watched, name)
    asked = Asked.of(request)
    rows = request.query_params.get("rows", str(ROWS))
    if not rows.isdecimal() or not 1 <= int(rows[:9]) <= MAX_ROWS:
        raise Refused(400, f"rows is a number from 1 to {MAX_ROWS}.")
    try:
        query = query_of(asked, name, int(rows), console.now())
        decoder = Decoder(
            rules,
            console.settings.value_view_bytes,
            asked.form,
            trees=True,
            schemas=await watched.registry.schemas(),
        )
        page = await read_page(request, watched, query, decoder)
    except (BadPlace, BadWhere) as error:
        raise Refused(400, str(error)) from error
    body = "".join(f"{line(one)}\n" for one in page.messages)
    response = Response(body.encode("utf-8", "backslashreplace"), media_type=NDJSON)
    onward = page.older if page.newest_first else page.newer
    if onward is not None:
        response.headers["ottla-next"] = (
            f"{'before' if page.newest_first else 'after'}={write_cut(onward)}"
        )
    return response


class Served(NamedTuple):
    """A route, what it answers with (None: lines of JSON), and the parameters it takes."""

    path: str
    handler: Handler
    summary: str
    view: type | None
    query: tuple[tuple[str, str], ...] = ()


_AT: Final = "/api/v1/c/{cluster}"
_TABLE: Final = (
    ("contains", "Only names that contain this text."),
    ("sort", "Field to sort by."),
    ("desc", "1: in descending order."),
    ("page", "Number of the page, from 1 on; a page has 50 rows."),
)
_MESSAGES: Final = (
    ("from", "newest, oldest, offset:N, time:2026-11-14T10:00:00Z or ago:15m."),
    ("p", "Partitions, such as 0,3; all without it."),
    ("as", "auto, json, text, hex, msgpack or registry."),
    ("isolation", "committed, or uncommitted: aborted records are there and marked."),
    ("contains", "Only records whose key, value or headers contain this text."),
    ("where", "Only records for which this CEL expression is true."),
    ("rows", "Records at most."),
    ("before", "Continue below these offsets, as the header ottla-next said."),
    ("after", "Continue at these offsets, as the header ottla-next said."),
)

SERVED: Final = (
    Served(f"{_AT}/overview", overview_json, "The cluster at a glance", overview.OverviewPage),
    Served(f"{_AT}/attention", attention_json, "What needs attention", Attention),
    Served(
        f"{_AT}/topics",
        topics_json,
        "Topics",
        topics.TopicsPage,
        (*_TABLE, ("internal", "1: internal topics, too.")),
    ),
    Served(f"{_AT}/topics/{{topic}}", topic_json, "One topic", topic.TopicPage, _TABLE),
    Served(f"{_AT}/topics/{{topic}}/messages", messages_json, "Records", None, _MESSAGES),
    Served(f"{_AT}/groups", groups_json, "Consumer groups", groups.GroupsPage, _TABLE),
    Served(f"{_AT}/groups/{{group}}", group_json, "One group", group.GroupPage, _TABLE),
    Served(f"{_AT}/queues", queues_json, "Queues (share groups)", queues.QueuesPage, _TABLE),
    Served(f"{_AT}/queues/{{queue}}", queue_json, "One queue", queue.QueuePage),
    Served(
        f"{_AT}/queues/{{queue}}/letters",
        letters_json,
        "Dead letters of a queue",
        letters.LettersPage,
        (*_TABLE, ("reason", "Only letters of this reason.")),
    ),
    Served(
        f"{_AT}/queues/{{queue}}/{{topic}}/{{partition}}",
        window_json,
        "The window of one partition of a queue",
        queue.WindowPage,
        (
            ("zoom", "An offset, or start: the columns are single offsets from there on."),
            ("ago", "Seconds: also as it was then, if somebody has looked at it since."),
        ),
    ),
    Served(
        f"{_AT}/transactions",
        transactions_json,
        "Transactions",
        transactions.TransactionsPage,
        (*_TABLE, ("hanging", "Look for hanging ones that wrote nothing for so many minutes.")),
    ),
    Served(
        f"{_AT}/transactions/{{id}}",
        transaction_json,
        "One transactional id",
        transactions.TransactionPage,
    ),
    Served(f"{_AT}/nodes", nodes_json, "Nodes", nodes.NodesPage),
    Served(f"{_AT}/tier", tier_json, "Tiered storage", tier.TierPage, _TABLE),
    Served(f"{_AT}/tables", tables_json, "Tables of topics", tables.TablesPage, _TABLE),
    Served(f"{_AT}/tables/{{topic}}", table_json, "One table", tables.TablePage),
    Served(f"{_AT}/pipelines", pipelines_json, "Pipelines", pipelines.PipelinesPage, _TABLE),
    Served(f"{_AT}/pipelines/{{pipeline}}", pipeline_json, "One pipeline", pipelines.PipelinePage),
    Served(f"{_AT}/schemas", schemas_json, "Subjects of schemas", schemas.SchemasPage, _TABLE),
    Served(
        f"{_AT}/schemas/{{subject}}",
        schema_json,
        "One subject and its versions",
        schemas.SchemaPage,
        (("version", "Number of the version; the newest without it."),),
    ),
    Served(
        f"{_AT}/security", security_json, "Users, rights, quotas", security.SecurityPage, _TABLE
    ),
    Served(
        "/api/v1/series",
        series_json,
        "The history of a figure, or the names of all that are kept",
        series.SeriesPage,
        (
            ("cluster", "Name of the cluster; the first one without it."),
            ("name", "Parts of the name, such as topic/orders/records_per_s."),
            ("contains", "Without a name: only names that contain this text."),
            ("from", "time:2026-11-14T10:00:00Z, ago:6h or oldest; ago:1h without it."),
            ("step", "Seconds; larger ones are taken where there would be over 2,000 points."),
        ),
    ),
    Served(f"{_AT}/doctor", doctor_json, "The console and the cluster", doctor.DoctorPage),
)


async def openapi_json(_: Request) -> Response:
    return JSONResponse(document(SERVED, CHANGED))


def routes() -> list[Route]:
    return [
        Route("/api/v1/openapi.json", openapi_json),
        *(Route(one.path, one.handler) for one in SERVED),
        *change_routes(),
    ]
