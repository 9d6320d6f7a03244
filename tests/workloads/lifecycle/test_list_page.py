"""The workloads table: whose rows it shows, how it is narrowed, and what it costs."""

import csv
import io
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.clusters import ClusterFactory, NodeFactory, NodePoolFactory
from tests.factories.workloads import REFUSAL, ObservedPodFactory, WorkloadFactory
from workloads.dictionary.models import Priority, WorkloadType
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]


@pytest.fixture
def rows(llm_team: Project, vision_team: Project, alice: User) -> None:
    """Four workloads of alice's project, one of another. One of each has a pod on the node gpu-01."""
    mine = {"project": llm_team, "submitted_by": "alice", "submitted_by_id": str(alice.pk)}
    running = {"phase": Phase.RUNNING, "gpu_milli": 4000, "allocated_gpu_milli": 4000, "pool_name": "a100"}
    train = WorkloadFactory(name="train-a", **running, **mine)
    high = Priority.objects.get(name="high")
    WorkloadFactory(name="train-b", priority=high, preemptibility="non-preemptible", phase_reason="OverLimit", **mine)
    Workload.objects.filter(name="train-b").update(preempted_count=2)
    WorkloadFactory(name="notebook", phase=Phase.STOPPED, **mine)
    WorkloadFactory(name="refused", type=WorkloadType.objects.get(name="Training"), failed_to_apply=True, **mine)
    segment = WorkloadFactory(project=vision_team, name="segment", preempted_count=1)
    elsewhere = ClusterFactory(name="elsewhere")
    NodePoolFactory(cluster=elsewhere, name="a100")
    for cluster in (llm_team.cluster, elsewhere):
        NodeFactory(cluster=cluster, name="gpu-01")
    for workload in (train, segment):
        ObservedPodFactory(workload=workload, node_name="gpu-01")
    left = Workload.objects.get(name="train-b")
    ObservedPodFactory(workload=left, node_name="gpu-01", gone_at=timezone.now())


def names(page: str) -> list[str]:
    return [name for name in ("train-a", "train-b", "notebook", "refused", "segment") if f">{name}</a>" in page]


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        pytest.param("", ["train-a", "train-b", "notebook", "refused"], id="everything that is mine"),
        pytest.param("?q=TRAIN", ["train-a", "train-b"], id="by name"),
        pytest.param("?phase=Running", ["train-a"], id="by phase"),
        pytest.param("?priority=high", ["train-b"], id="by priority"),
        pytest.param("?preemptibility=non-preemptible", ["train-b"], id="by preemptibility"),
        pytest.param("?type=PyTorchJob&phase=Stopped", ["notebook"], id="both must hold"),
        pytest.param("?project=llm-team", ["train-a", "train-b", "notebook", "refused"], id="by project"),
        pytest.param("?result=failed-to-apply", ["refused"], id="failed to apply"),
        pytest.param("?by=alice", ["train-a", "train-b", "notebook", "refused"], id="by who submitted it"),
        pytest.param("?by=ali", [], id="by the whole name"),
        pytest.param("?result=failed-to-apply&q=train", [], id="failed to apply, by name"),
        pytest.param("?result=evicted", ["train-b"], id="evicted at least once"),
        pytest.param("?cluster=lab", ["train-a", "train-b", "notebook", "refused"], id="by cluster"),
        pytest.param("?cluster=elsewhere", [], id="of another cluster"),
        pytest.param("?pool=a100", ["train-a"], id="by node pool"),
        pytest.param("?node=gpu-01", ["train-a"], id="by the node that holds its pods now"),
        pytest.param("?cluster=elsewhere&node=gpu-01", [], id="a node of this name of another cluster"),
        pytest.param("?q=nothing-like-it", [], id="nothing"),
    ],
)
def test_filters_narrow_the_table(client_of: Clients, rows: None, alice: User, query: str, shown: list[str]) -> None:
    assert names(client_of(alice).get(f"/workloads/{query}").content.decode()) == shown


@pytest.mark.parametrize(
    "query",
    [
        "?project=vision-team",
        "?project=vision-team&q=segment",
        "?q=segment",
        "?sort=project__cluster__token",
        "?phase=%27%20OR%201=1",
        "?priority=%00",
        "?node=%00",
        "?node=gpu-01&result=evicted",
    ],
)
def test_t51_no_filter_and_no_order_reaches_another_project(
    client_of: Clients, rows: None, alice: User, query: str
) -> None:
    answer = client_of(alice).get(f"/workloads/{query}")
    assert answer.status_code == 200
    assert ">segment</a>" not in answer.content.decode()
    assert ">vision-team<" not in answer.content.decode()


@pytest.mark.parametrize(
    ("query", "chip"),
    [
        ("?project=no-such-project", "project: no-such-project (not found)"),
        ("?project=vision-team", "project: vision-team (not found)"),
        ("?phase=Runing&q=train", "phase: Runing (not found)"),
        ("?cluster=no-such-cluster", "cluster: no-such-cluster (not found)"),
        ("?pool=no-such-pool", "pool: no-such-pool (not found)"),
        ("?node=no-such-node", "node: no-such-node (not found)"),
    ],
)
def test_a_filter_that_names_nothing_the_reader_may_see_is_shown_over_an_empty_table(
    client_of: Clients, rows: None, alice: User, query: str, chip: str
) -> None:
    page = client_of(alice).get(f"/workloads/{query}").content.decode()
    assert chip in page
    assert names(page) == []
    assert "No workloads match these filters." in page


def test_t51_a_forged_page_is_400(client_of: Clients, rows: None, alice: User) -> None:
    assert client_of(alice).get("/workloads/?after=bm9uZQ").status_code == 400


def test_deleted_workloads_are_listed_when_they_are_wanted_and_then_only_they(
    client_of: Clients, rows: None, alice: User
) -> None:
    Workload.objects.filter(name="notebook").update(deleted_at=timezone.now(), phase=Phase.DELETING)
    client = client_of(alice)
    page = client.get("/workloads/?result=deleted").content.decode()
    assert names(page) == ["notebook"]
    assert '<span class="mark mark-off">Deleted</span>' in page
    assert 'name="id"' not in page, "there is nothing to do with it in a batch"
    assert names(client.get("/workloads/").content.decode()) == ["train-a", "train-b", "refused"]
    gone = Workload.objects.get(name="notebook")
    page = " ".join(client.get(f"/workloads/{gone.pk}/").content.decode().split())
    assert "Its objects are gone from the cluster. A clone submits it again." in page


def test_an_empty_filter_offers_the_way_back(client_of: Clients, rows: None, alice: User) -> None:
    page = client_of(alice).get("/workloads/?q=nothing-like-it").content.decode()
    assert "No workloads match these filters." in page
    assert "Clear filters" in page


def test_an_admin_sees_what_failed_to_apply_in_every_project(
    client_of: Clients, rows: None, vision_team: Project, admin: User
) -> None:
    Workload.objects.filter(name="segment").update(phase=Phase.FAILED, apply_error="Invalid value")
    page = client_of(admin).get("/workloads/?result=failed-to-apply").content.decode()
    assert names(page) == ["refused", "segment"]
    assert REFUSAL in page


def test_where_nothing_failed_to_apply_it_says_so(client_of: Clients, llm_team: Project, admin: User) -> None:
    assert (
        "No workloads failed to apply." in client_of(admin).get("/workloads/?result=failed-to-apply").content.decode()
    )


def test_each_filter_is_a_chip_that_removes_it(client_of: Clients, rows: None, alice: User) -> None:
    page = client_of(alice).get("/workloads/?q=train&phase=Running&after=").content.decode()
    assert 'href="?phase=Running"' in page
    assert 'href="?q=train"' in page


def test_a_filter_says_how_many_workloads_and_gpus_it_finds(client_of: Clients, rows: None, alice: User) -> None:
    client = client_of(alice)
    page = " ".join(client.get("/workloads/?q=train").content.decode().split())
    assert "2 workloads: 5 GPUs requested, 4 GPUs allocated." in page
    assert "GPUs requested" not in client.get("/workloads/").content.decode()


def test_more_than_a_thousand_rows_are_not_counted(client_of: Clients, llm_team: Project, alice: User) -> None:
    rows = WorkloadFactory.build_batch(1001, project=llm_team, type=WorkloadType.objects.all()[0])
    Workload.objects.bulk_create(rows)
    assert "More than 1000 workloads." in client_of(alice).get("/workloads/?project=llm-team").content.decode()


def test_a_reason_is_said_in_words(client_of: Clients, rows: None, alice: User) -> None:
    assert "over the limit" in client_of(alice).get("/workloads/?q=train-b").content.decode()


def test_htmx_gets_the_table_alone(client_of: Clients, rows: None, alice: User) -> None:
    headers = {"HX-Request": "true", "HX-Target": "table"}
    page = client_of(alice).get("/workloads/", headers=headers).content.decode()
    assert page.lstrip().startswith('<div id="table"')
    assert "<html" not in page
    assert names(page) == ["train-a", "train-b", "notebook", "refused"]


def test_t54_the_table_alone_is_scoped_like_the_page(client_of: Clients, rows: None, charlie: User) -> None:
    headers = {"HX-Request": "true", "HX-Target": "table"}
    assert names(client_of(charlie).get("/workloads/", headers=headers).content.decode()) == ["segment"]


def test_an_unknown_part_is_the_whole_page(client_of: Clients, rows: None, alice: User) -> None:
    headers = {"HX-Request": "true", "HX-Target": "../settings"}
    assert "<html" in client_of(alice).get("/workloads/", headers=headers).content.decode()


def test_t57_a_name_is_text_and_never_markup(client_of: Clients, llm_team: Project, alice: User) -> None:
    evil = "<script>alert(1)</script><b hx-get=/x hx-trigger=load>"
    WorkloadFactory(project=llm_team, submitted_by_id=str(alice.pk))
    Workload.objects.update(name=evil, phase_reason=evil[:60], phase_message=evil, submitted_by=evil, preempted_count=1)
    for address in ("/workloads/", "/", "/workloads/?q=%3Cscript%3E"):
        page = client_of(alice).get(address).content.decode()
        assert "&lt;script&gt;alert(1)" in page
        assert "<script>alert" not in page
        assert "<b hx-get" not in page


def test_ten_and_a_hundred_rows_cost_the_same(client_of: Clients, llm_team: Project, alice: User) -> None:
    client = client_of(alice)
    counts = []
    for more in (10, 90):
        WorkloadFactory.create_batch(more, project=llm_team)
        with CaptureQueriesContext(connection) as queries:
            client.get("/workloads/")
        counts.append(len(queries))
    assert counts[0] == counts[1]
    assert counts[0] <= 14


@pytest.mark.usefixtures("rows")
def test_the_table_reads_no_manifests(client_of: Clients, alice: User) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert len(names(client_of(alice).get("/workloads/").content.decode())) == 4
    assert not [each for each in queries if '."raw"' in each["sql"]]


def test_a_full_page_leads_to_the_next(client_of: Clients, llm_team: Project, alice: User) -> None:
    WorkloadFactory.create_batch(51, project=llm_team)
    client = client_of(alice)
    first = client.get("/workloads/")
    assert len(first.context["page"].rows) == 50
    second = client.get("/workloads/", {"after": first.context["page"].next})
    assert len(second.context["page"].rows) == 1
    assert "First page" in second.content.decode()


class TestManyRowsAtOnce:
    """Stop, resume, retry and delete with an answer per row."""

    def act(self, client: Client, verb: str, *rows: Workload | str) -> list[tuple[str, str]]:
        ids = [str(row.pk) if isinstance(row, Workload) else row for row in rows]
        answer = client.post("/workloads/bulk/", {"verb": verb, "id": ids, "sure": "yes"})
        return [(each.name, each.refusal) for each in answer.context["results"]]

    def test_each_row_has_its_own_answer(self, client_of: Clients, rows: None, alice: User) -> None:
        stopped, ended = Workload.objects.get(name="notebook"), Workload.objects.get(name="train-a")
        Workload.objects.filter(pk=stopped.pk).update(desired_phase="Stopped")
        Workload.objects.filter(pk=ended.pk).update(phase=Phase.COMPLETED)
        results = dict(self.act(client_of(alice), "resume", stopped, ended))
        assert results["notebook"] == ""
        assert "cannot be resumed" in results["train-a"]
        stopped.refresh_from_db()
        assert stopped.phase == Phase.RESUMING

    def test_ticked_rows_are_retried(self, client_of: Clients, rows: None, alice: User) -> None:
        refused, running = Workload.objects.get(name="refused"), Workload.objects.get(name="train-a")
        results = dict(self.act(client_of(alice), "retry", refused, running))
        assert results["refused"] == ""
        assert "only a workload that failed to apply" in results["train-a"]

    def test_t53_a_foreign_row_is_not_found_and_untouched(self, client_of: Clients, rows: None, alice: User) -> None:
        foreign = Workload.objects.get(name="segment")
        assert self.act(client_of(alice), "delete", foreign) == [("–", "Not found.")]
        foreign.refresh_from_db()
        assert foreign.desired_phase == "Running"

    @pytest.mark.parametrize(
        ("verb", "ids"),
        [("explode", ["0" * 32]), ("stop", []), ("stop", ["../1"]), ("stop", [f"{n:032x}" for n in range(101)])],
        ids=["no such verb", "nothing ticked", "no id", "too many"],
    )
    def test_what_makes_no_sense_is_400(self, client_of: Clients, alice: User, verb: str, ids: list[str]) -> None:
        assert client_of(alice).post("/workloads/bulk/", {"verb": verb, "id": ids}).status_code == 400


class TestAskingBeforeWorkEnds:
    """Stop and delete of several rows act only once they were asked for a second time."""

    def send(self, client: Client, verb: str, *rows: Workload, **more: str) -> HttpResponse:
        return client.post("/workloads/bulk/", {"verb": verb, "id": [str(row.pk) for row in rows], **more})

    @pytest.fixture
    def running(self, rows: None) -> Workload:
        """It has run for two hours on four GPUs, and saved half an hour ago."""
        row = Workload.objects.get(name="train-a")
        now = timezone.now()
        saved = (now - timedelta(minutes=30)).isoformat()
        row.spec = {**row.spec, "annotations": {"rung.dev/last-checkpoint-at": saved}}
        row.started_at = row.phase_at = now - timedelta(hours=2)
        row.save()
        return row

    @pytest.mark.parametrize("verb", ["stop", "delete"])
    def test_nothing_ends_before_the_second_click(
        self, client_of: Clients, running: Workload, alice: User, verb: str
    ) -> None:
        notebook, refused = Workload.objects.get(name="notebook"), Workload.objects.get(name="refused")
        answer = self.send(client_of(alice), verb, running, refused)
        page = answer.content.decode()
        assert [(each.workload.name, each.lost, each.ends) for each in answer.context["endings"]] == [
            ("refused", "", verb == "delete"),
            ("train-a", "2.0 GPU-hours", True),
        ]
        assert "Last reported checkpoint: 30 min" in page
        assert "2 h" in page
        assert ("Already ended." in page) == (verb == "stop")
        assert set(Workload.objects.filter(project=running.project).values_list("desired_phase", flat=True)) <= {
            "Running",
            notebook.desired_phase,
        }

    def test_a_stop_is_reported_with_names_and_can_be_taken_back(
        self, client_of: Clients, running: Workload, alice: User
    ) -> None:
        client, refused = client_of(alice), Workload.objects.get(name="refused")
        done = self.send(client, "stop", running, refused, sure="yes")
        assert [(each.name, each.changed) for each in done.context["results"]] == [
            ("train-a", True),
            ("refused", False),
        ]
        page = done.content.decode()
        assert "no change, it is Failed" in page
        assert "Resume 1 workload" in page
        assert page.count(f'name="id" value="{running.pk}"') == 1
        assert f'name="id" value="{refused.pk}"' not in page
        self.send(client, "resume", running)
        running.refresh_from_db()
        assert running.desired_phase == "Running"

    def test_what_is_deleted_can_be_cloned(self, client_of: Clients, running: Workload, alice: User) -> None:
        client = client_of(alice)
        page = self.send(client, "delete", running, sure="yes").content.decode()
        clone = f"/workloads/submit/yaml/?clone={running.pk}"
        assert clone in page
        assert client.get(clone).status_code == 200

    def test_a_row_of_somebody_else_is_named_as_refused(self, client_of: Clients, running: Workload, bob: User) -> None:
        answer = self.send(client_of(bob), "stop", running)
        assert [(each.said, each.ends) for each in answer.context["endings"]] == [
            ("No permission to change it.", False)
        ]
        assert "No changes: none of these workloads would be affected." in answer.content.decode()

    def test_rows_that_are_not_found_are_counted(self, client_of: Clients, running: Workload, alice: User) -> None:
        foreign = Workload.objects.get(name="segment")
        page = self.send(client_of(alice), "delete", running, foreign).content.decode()
        assert "1 selected workload was not found." in page
        assert "segment" not in page


def sheet(answer: HttpResponse) -> list[dict[str, str]]:
    assert answer.headers["Content-Type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


@pytest.mark.usefixtures("rows")
def test_the_filtered_table_is_downloaded_as_a_sheet_of_what_i_may_see(client_of: Clients, alice: User) -> None:
    client = client_of(alice)
    assert 'href="?phase=Running&amp;format=csv"' in client.get("/workloads/?phase=Running").content.decode()
    every = sheet(client.get("/workloads/?format=csv&sort=name"))
    assert [row["name"] for row in every] == ["notebook", "refused", "train-a", "train-b"]
    (running,) = sheet(client.get("/workloads/?format=csv&phase=Running"))
    shown = ("name", "project", "priority", "phase", "gpus", "nodePool", "submittedBy", "evictions")
    assert [running[name] for name in shown] == ["train-a", "llm-team", "low", "Running", "4", "a100", "alice", "0"]
    assert every[3]["evictions"] == "2"


def test_a_cell_that_a_spreadsheet_would_run_is_quoted(client_of: Clients, alice: User, llm_team: Project) -> None:
    WorkloadFactory(project=llm_team, name="train", submitted_by="=1+1")
    (row,) = sheet(client_of(alice).get("/workloads/?format=csv"))
    assert row["submittedBy"] == "'=1+1"


def test_a_sheet_costs_as_many_queries_for_many_rows(client_of: Clients, alice: User, llm_team: Project) -> None:
    counts = []
    for number in (1, 20):
        for index in range(number):
            WorkloadFactory(project=llm_team, name=f"w-{number}-{index}")
        client = client_of(alice)
        with CaptureQueriesContext(connection) as queries:
            sheet(client.get("/workloads/?format=csv"))
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_more_rows_than_a_sheet_has_are_refused_on_the_page(
    client_of: Clients, alice: User, llm_team: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workloads.lifecycle.views.home.MOST_IN_FILE", 1)
    for name in ("train-a", "train-b"):
        WorkloadFactory(project=llm_team, name=name)
    client = client_of(alice)
    answer = client.get("/workloads/?format=csv&sort=name")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/workloads/?sort=name")
    assert "at most 1 workloads. Narrow the filter." in client.get("/workloads/?sort=name").content.decode()
    assert [row["name"] for row in sheet(client.get("/workloads/?format=csv&q=train-b"))] == ["train-b"]
