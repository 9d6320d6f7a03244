"""B5: the workload list, page and API, with 1 thousand and 1 million rows; the deepest page against the first.

    python -m benchmarks.bench_list [rows]
"""

import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import stage
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request
from rest_framework.serializers import ModelSerializer
from rest_framework.test import APIRequestFactory

from tenants.models import User
from tenants.services.service_accounts import create, exchange
from workloads.demo.organisation import ACTOR
from workloads.models import Workload

REPEATS = 60
FILTER = "project=p3&phase=Completed"
API_FILTER = "filterBy=projectName%3D%3Dp3%2Cphase%3D%3DCompleted"


class Plain(ModelSerializer[Workload]):
    """What a DRF list serializes by default."""

    class Meta:
        model = Workload
        exclude = ("spec", "raw")


def visitor(user: User) -> Client:
    """A signed-in browser."""
    client = Client()
    client.force_login(user)
    return client


def deepest(client: Client) -> str:
    """The URL of a page far down: the cursor a reader of the oldest rows would hold."""
    from portal.core.keyset import _cursor  # noqa: PLC2701 - the same cursor the page writes

    rows = Workload.objects.filter(project__name="p3", phase="Completed").order_by("created_at")
    return f"/workloads/?{FILTER}&after={_cursor(rows[60], 'created_at')}"


def get(client: Client, url: str, **headers: Any) -> Callable[[], object]:
    """Fetch a page and insist on 200."""

    def act() -> object:
        response = client.get(url, **headers)
        assert response.status_code == 200, response.status_code
        return response

    return act


def peer(page: int) -> Callable[[], object]:
    """DRF's PageNumberPagination on the same table and filter."""
    paginator = PageNumberPagination()
    paginator.page_size = 50

    def act() -> object:
        request = Request(APIRequestFactory().get("/", {"page": page}))
        rows = Workload.objects.filter(project__name="p3", phase="Completed").order_by("-created_at")
        return Plain(paginator.paginate_queryset(rows, request), many=True).data

    return act


def measure(count: int) -> dict[str, list[float]]:
    """Samples of every kind of list on a database with `count` workloads."""
    user = stage.organisation()
    stage.fill(count)
    account, secret = create(name="bench", actor=ACTOR, role="platform-admin")
    bearer = {"HTTP_AUTHORIZATION": f"Bearer {exchange(account.client_id, secret)}"}
    client, page, api = visitor(user), f"/workloads/?{FILTER}", f"/api/v1/workloads?limit=50&{API_FILTER}"
    with CaptureQueriesContext(connection) as queries:
        get(client, page)()
    print(f"{count:>9,} workloads: {len(queries)} queries for the page")
    last = max(1, Workload.objects.filter(project__name="p3", phase="Completed").count() // 50)
    return {
        "page": stage.seconds(get(client, page), REPEATS),
        "deep": stage.seconds(get(client, deepest(client)), REPEATS),
        "api": stage.seconds(get(client, api, **bearer), REPEATS),
        "peer deep": stage.seconds(peer(last), 5),
    }


def main(rows: int) -> None:
    """Print the ratios."""
    print(f"PostgreSQL, {os.cpu_count()} cores, {REPEATS} repeats after 3 uncounted")
    found = {}
    with stage.server() as folder:
        for count in (1_000, rows):
            with stage.stage(folder, f"bench_{count}"):
                found[count] = measure(count)
    small, large = found[1_000], found[rows]
    stage.ratio("page, 1M / 1k, median", large["page"], small["page"], 1.10)
    stage.ratio("API, 1M / 1k, median", large["api"], small["api"], 1.10)
    stage.ratio("page, deep / first, 1M", large["deep"], large["page"], 1.10)
    stage.ratio("deep page / DRF PageNumberPagination, 1M", large["deep"], large["peer deep"], 1 / 50)
    for name in ("page", "api"):
        print(f"{name} p99, 1M / 1k: {stage.p99(large[name]) / stage.p99(small[name]):.2f} (limit 1.3)")
    print(f"medians at {rows:,}: page {statistics.median(large['page']) * 1e3:.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
