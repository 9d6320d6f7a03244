"""B5: the workload list, page and API, with 1 thousand and 1 million rows; deep pages against the first, and a peer.

    python -m benchmarks.bench_list [--rows 1000000] [--rounds 12] [--samples 6]

Both databases stand on one PostgreSQL and are asked in turns. Whole requests through Django's test client, without a
socket. The peer is DRF's PageNumberPagination with a ModelSerializer; compared with what our API does with the same
rows, both without HTTP. Samples go to benchmarks/results/list.json.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request
from rest_framework.serializers import ModelSerializer
from rest_framework.test import APIRequestFactory

from benchmarks import stage
from portal.demo.organisation import ACTOR
from portal.kit.db.keyset_pagination import page_of
from tenants.access.models import Membership, Role, User
from tenants.access.services.credentials import exchange
from tenants.access.services.subjects import create_service_account
from tenants.organisation.models import Project
from tests.support import database, postgres
from workloads.lifecycle.serializers.workloads import workload_json
from workloads.state.models import Workload

SMALL = 1_000
FILTER = "project=p3&phase=Completed"
API_FILTER = "filterBy=projectName%3D%3Dp3%2Cphase%3D%3DCompleted"
PAGE, API = "/workloads/?", "/api/v1/workloads?limit=50&"
# Name, who asks, where.
LISTS = (
    ("page, project + phase", "admin", PAGE + FILTER),
    ("page, everything", "admin", PAGE),
    ("page, one phase of everything", "admin", PAGE + "phase=Failed"),
    ("page, a member's project", "member", PAGE),
    ("page, a member's project of 20", "tiny", PAGE),
    ("page by name", "admin", PAGE + "sort=name"),
    ("page by priority", "admin", PAGE + "sort=priority"),
    ("page by last change", "admin", PAGE + "sort=changed"),
    ("API, project + phase", "robot", API + API_FILTER),
    ("API, everything", "robot", API),
    ("API by priority", "robot", API + "sortBy=priority&sortOrder=desc"),
)
DEEP = "page, everything, deep"
DEEP_API = "API, everything, deep by cursor"
Act = Callable[[], object]
Samples = dict[str, list[float]]


class Plain(ModelSerializer[Workload]):
    """What a DRF list serializes by default."""

    class Meta:
        model = Workload
        exclude = ("spec", "raw")


def people(rows: int) -> None:
    """An admin, a member of one tenth of everything, a member of a project that holds the 20 oldest rows, a robot."""
    stage.organisation()
    stage.fill(rows)
    small = Project.objects.get(name="p0")
    tiny = Project.objects.create(
        department=small.department, cluster=small.cluster, name="tiny", namespace="runai-tiny"
    )
    oldest = Workload.objects.order_by("created_at").values_list("pk", flat=True)[:20]
    Workload.objects.filter(pk__in=list(oldest)).update(project=tiny)
    for name, project in {"member": Project.objects.get(name="p3"), "tiny": tiny}.items():
        user = User.objects.create_user(name, password="bench")
        Membership.objects.create(user=user, project=project, role_id=Role.MEMBER)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def visitors() -> dict[str, Client]:
    """Everybody who asks, signed in."""
    found = {name: Client() for name in ("admin", "member", "tiny")}
    for name, client in found.items():
        client.force_login(User.objects.get(username=name))
    account, secret = create_service_account(name=f"robot-{os.urandom(4).hex()}", actor=ACTOR, role=Role.PLATFORM_ADMIN)
    found["robot"] = Client(headers={"Authorization": f"Bearer {exchange(account.client_id, secret).text}"})
    return found


def get(client: Client, url: str) -> Act:
    """Fetch a page and insist on 200."""

    def act() -> object:
        response = client.get(url)
        assert response.status_code == 200, response.status_code
        return response

    return act


def deep_cursor() -> str:
    """The cursor of a reader who has nearly reached the oldest rows."""
    oldest = Workload.objects.order_by("created_at")[120]
    rows = Workload.objects.filter(created_at__lte=oldest.created_at)
    return page_of(rows, column="-created_at", after="", size=50).next


def api_cursor(robot: Client, rows: int) -> str:
    """What the API gives a script that has nearly reached the oldest rows."""
    found: str = robot.get(f"{API}offset={rows - 170}").json()["nextAfter"]
    return found


def deep_rows(cursor: str) -> Act:
    """What our lists read and the API says of a deep page."""

    def act() -> object:
        rows = Workload.objects.filter(deleted_at__isnull=True)
        related = rows.select_related("project__department", "project__cluster", "type", "priority")
        return [workload_json(row) for row in page_of(related, column="-created_at", after=cursor, size=50).rows]

    return act


def peer(page: int) -> Act:
    """The same page of the same rows as DRF's tutorial has it: a count and an offset."""
    paginator = PageNumberPagination()
    paginator.page_size = 50

    def act() -> object:
        request = Request(APIRequestFactory().get("/", {"page": page}))
        rows = Workload.objects.filter(deleted_at__isnull=True).order_by("-created_at")
        return Plain(paginator.paginate_queryset(rows, request), many=True).data

    return act


def queries(act: Act) -> int:
    """How many statements it takes."""
    act()
    with CaptureQueriesContext(connection) as captured:
        act()
        return len(captured)


def acts_of(rows: int, counts: dict[str, set[int]]) -> dict[str, Act]:
    """Every list as something to call, on the database that is the default now; its queries are counted."""
    known, cursor = visitors(), deep_cursor()
    acts = {name: get(known[who], url) for name, who, url in LISTS}
    acts[DEEP] = get(known["admin"], f"{PAGE}after={cursor}")
    acts[DEEP_API] = get(known["robot"], f"{API}after={api_cursor(known['robot'], rows)}")
    for name, act in acts.items():
        counts[name].add(queries(act))
    return {**acts, "deep rows": deep_rows(cursor), **({"peer": peer(rows // 50 - 1)} if rows > SMALL else {})}


def measure(folder: Path, options: Any, counts: dict[str, set[int]]) -> dict[int, Samples]:
    """List by list, a few samples on one database and then on the other, in changing order."""
    sizes = (SMALL, options.rows)
    acts: dict[int, dict[str, Act]] = {}
    found: dict[int, Samples] = {size: defaultdict(list) for size in sizes}
    for size in sizes:
        with at(folder, size):
            acts[size] = acts_of(size, counts)
    for number in range(options.rounds):
        for name in acts[options.rows]:
            for size in sizes if number % 2 else reversed(sizes):
                if name in acts[size]:
                    with at(folder, size):
                        found[size][name] += stage.seconds(acts[size][name], 1 if name == "peer" else options.samples)
    return found


def at(folder: Path, size: int) -> AbstractContextManager[None]:
    """The database of that size as Django's default."""
    return database.default_database(postgres.url(folder, f"list_{size}"))


def report(small: Samples, large: Samples) -> None:
    """The ratios with their limits."""
    lists = [*(name for name, _who, _url in LISTS), DEEP, DEEP_API]
    for name in lists:
        stage.ratio(f"{name}: large / small", large[name], small[name], 1.10)
    tails = [stage.p99(together(each, small, lists)) for each in (large, small)]
    print(f"{'p99 of all lists together: large / small':<44} {tails[0] / tails[1]:6.2f}  limit  1.30")
    stage.ratio("deep / first page", large[DEEP], large["page, everything"], 1.10)
    stage.ratio("API: deep / first page", large[DEEP_API], large["API, everything"], 1.10)
    stage.ratio("deep rows / PageNumberPagination", large["deep rows"], large["peer"], 1 / 50)


def together(samples: Samples, small: Samples, lists: list[str]) -> list[float]:
    """Samples of all lists in units of each list's median: one list has too few for a tail on a shared machine."""
    return [each / statistics.median(small[name]) for name in lists for each in samples[name]]


def main() -> None:
    """Fill two databases, measure, report; a list whose number of queries grows is an error."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--samples", type=int, default=6)
    options = parser.parse_args()
    print(f"PostgreSQL, {os.cpu_count()} cores, {options.rounds} rounds of {options.samples} samples per list")
    counts: dict[str, set[int]] = defaultdict(set)
    with stage.server() as folder:
        for size in (SMALL, options.rows):
            with stage.stage(folder, f"list_{size}"):
                people(size)
        found = measure(folder, options, counts)
    report(found[SMALL], found[options.rows])
    print("queries:", ", ".join(f"{name} {sorted(each)}" for name, each in counts.items()))
    assert all(len(each) == 1 for each in counts.values()), "the number of queries depends on the number of rows"
    plain = {size: {name: summary(each) for name, each in lists.items()} for size, lists in found.items()}
    stage.keep("list", {"options": vars(options), "milliseconds": plain})


def summary(samples: list[float]) -> dict[str, Any]:
    """Median, p99 and the samples themselves in tenths of a millisecond."""
    tenths = [round(each * 1e3, 1) for each in samples]
    return {"p50": statistics.median(tenths), "p99": round(stage.p99(tenths), 1), "samples": tenths}


if __name__ == "__main__":
    main()
