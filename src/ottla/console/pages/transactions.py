"""Transactions: what is open and what it holds back; fencing a producer, aborting what hangs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse

from ottla.client.admin.transactions import LONGEST_TRANSACTION, TransactionCalls
from ottla.client.errors import ClientError
from ottla.console.app import console_of
from ottla.console.guard import operates
from ottla.console.missing import Missing, missing
from ottla.console.pages.changing import done, field
from ottla.console.pages.details import number
from ottla.console.pages.shared import answer, table_query
from ottla.console.problem import Refused
from ottla.console.slugs import unslug
from ottla.console.snapshot import Kind
from ottla.console.text import name as shown
from ottla.console.views import transactions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.client.admin.types import HangingTransaction
    from ottla.client.cluster.view import TopicPartition
    from ottla.console.views.transactions import Held, TransactionPage, TransactionsPage
    from ottla.console.watching import Watched

MOST_PARTITIONS: Final = 200
"""Partitions of open transactions whose ends a page asks for."""
MOST_MINUTES: Final = 100_000


async def transactions_view(request: Request) -> TransactionsPage:
    """The page's values; `hanging` in the URL asks for those that nobody will end."""
    watched = console_of(request).cluster(request)
    await watched.fresh(Kind.CLUSTER, Kind.TRANSACTIONS)
    hanging = await _hanging(watched, request.query_params.get("hanging", ""))
    held = await _held(watched, _open_partitions(watched))
    return transactions.page(
        watched.look(), watched.attention(), table_query(request), held, hanging
    )


def _open_partitions(watched: Watched, name: str | None = None) -> list[TopicPartition]:
    listed = watched.look().data.transactions.value
    if isinstance(listed, Missing):
        return []
    return [
        key
        for one in listed
        if transactions.is_open(one) and name in (None, one.transactional_id)
        for key in one.partitions
    ]


async def _held(watched: Watched, keys: Iterable[TopicPartition]) -> Held:
    """What cannot be asked for is not known: the page says so by leaving it out."""
    wanted = sorted(set(keys))[:MOST_PARTITIONS]
    if not wanted:
        return {}
    calls = TransactionCalls(watched.client)
    try:
        ends, stable = await asyncio.gather(
            calls.list_offsets(wanted),
            calls.list_offsets(wanted, isolation_level="read_committed"),
        )
    except ClientError:
        return {}
    return {
        key: max(0, ends[key].offset - stable[key].offset)
        for key in wanted
        if key in ends and key in stable
    }


async def _hanging(watched: Watched, minutes: str) -> list[HangingTransaction] | Missing | None:
    if not minutes:
        return None
    least = number(minutes, "number of minutes")
    calls = TransactionCalls(watched.client)
    try:
        return await calls.find_hanging_transactions(longer_than=60.0 * min(least, MOST_MINUTES))
    except ClientError as error:
        return missing(error, "Read on the topics, and Describe on the transactional ids")


async def transactions_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page = await transactions_view(request)
    return answer(
        request,
        watched,
        "transactions.html",
        "Transactions",
        page=page,
        query=table_query(request),
        longest=int(LONGEST_TRANSACTION // 60),
    )


async def transaction_view(request: Request) -> TransactionPage:
    watched = console_of(request).cluster(request)
    name = unslug(request.path_params["id"])
    await watched.fresh(Kind.CLUSTER, Kind.TRANSACTIONS)
    held = await _held(watched, _open_partitions(watched, name))
    return transactions.one_page(watched.look(), watched.attention(), name, held)


async def transaction_page(request: Request) -> Response:
    watched = console_of(request).cluster(request)
    page = await transaction_view(request)
    return answer(request, watched, "transaction.html", shown(page.name), page=page)


@operates
async def fence(request: Request, form: FormData) -> Response:
    """Abort what the producer has open, and fence it."""
    console = console_of(request)
    watched = console.cluster(request)
    name = unslug(request.path_params["id"])
    if field(form, "name") != name:
        raise Refused(400, "Type the transactional id to abort; the one that came is another.")
    calls = TransactionCalls(watched.client)

    async def work() -> None:
        await calls.describe_transactions([name])  # an unknown id is an error
        await calls.fence_producer(name)

    await done(request, watched, "Write", f"transactional id {name}", work())
    return await _back(request, watched)


@operates
async def abort(request: Request, form: FormData) -> Response:
    """Abort a hanging transaction in its partition."""
    console = console_of(request)
    watched = console.cluster(request)
    topic = field(form, "topic")
    partition = number(field(form, "partition"), "partition")
    start = number(field(form, "start"), "offset")
    where = f"{topic}-{partition}"
    if field(form, "name") != where:
        raise Refused(400, f"Type {shown(where)} to abort what hangs there; what came is another.")
    calls = TransactionCalls(watched.client)
    stuck = await calls.find_hanging_transactions([(topic, partition)], longer_than=0)
    if start not in [one.producer.transaction_start_offset for one in stuck]:
        raise Refused(409, "No transaction without a coordinator is open from there on any more.")
    work = calls.abort_transaction(topic, partition, start)
    await done(request, watched, "ClusterAction", f"transaction in {where} from {start}", work)
    return await _back(request, watched)


async def _back(request: Request, watched: Watched) -> Response:
    """To the list, which has heard of the change."""
    watched.snapshot.forget(Kind.TRANSACTIONS)
    return RedirectResponse(console_of(request).links(watched.name).page("transactions"), 303)
