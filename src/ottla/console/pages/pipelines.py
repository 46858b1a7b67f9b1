"""Pipelines, as their runs tell them in `ottla.pipelines`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.console.app import console_of
from ottla.console.pages.shared import answer, table_query
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind
from ottla.console.text import name as shown
from ottla.console.views import pipelines
from ottla.metadata.names import PIPELINES_TOPIC

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.views.pipelines import PipelinePage, PipelinesPage


async def pipelines_view(request: Request) -> PipelinesPage:
    watched = console_of(request).cluster(request)
    await watched.fresh(Kind.CLUSTER, Kind.PIPELINES)
    return pipelines.page(watched.look(), watched.attention(), table_query(request))


async def pipeline_view(request: Request) -> PipelinePage:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["pipeline"])
    await watched.fresh(Kind.CLUSTER, Kind.PIPELINES)
    topics = pipelines.reject_topics(watched.look(), name)
    keys = [key for topic in topics for key in watched.snapshot.data.partitions(topic)]
    watched.cluster.sampler.watch(keys)
    await watched.ends(keys)
    return pipelines.pipeline_page(watched.look(), watched.attention(), name)


async def pipelines_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page, query = await pipelines_view(request), table_query(request)
    return answer(request, watched, "pipelines.html", "Pipelines", page=page, query=query)


async def pipeline_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page = await pipeline_view(request)
    return answer(
        request, watched, "pipeline.html", shown(page.name), page=page, told_in=PIPELINES_TOPIC
    )
