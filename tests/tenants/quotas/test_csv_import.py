"""Quotas as CSV: a dry run shows every line and stores nothing; the import goes through the same checks."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from clusters.inventory.models import Cluster, NodePool
from portal.audit.models import AuditRecord
from scheduling.model.resources import Resources
from tenants.access.models import User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota
from tenants.usage.rules import EvictableWork
from tenants.usage.selectors import Usage
from tests.factories.cast import Ledger
from workloads.plans.models import PlanApproval

HEAD = (
    "project,node_pool,gpu_deserved,gpu_limit,cpu_deserved,cpu_limit,memory_deserved,memory_limit,"
    "over_quota_weight,rank,reason\n"
)


@pytest.fixture
def console(client_of: Callable[[User], Client], admin: User) -> Client:
    """The console as admin sees it."""
    return client_of(admin)


def dry_run(console: Client, text: str, kind: str = "projectquota") -> Any:
    """Upload a file; the answer shows what it would do."""
    url = reverse(f"admin:tenants_{kind}_import")
    upload = SimpleUploadedFile("quotas.csv", text.encode(), content_type="text/csv")
    answer = console.post(url, {"format": "0", "import_file": upload})
    assert answer.status_code == 200
    return answer


def confirm(console: Client, answer: Any, kind: str = "projectquota") -> Any:
    """Press the button under the dry run."""
    form = answer.context["confirm_form"].initial
    url = reverse(f"admin:tenants_{kind}_process_import")
    return console.post(url, {key: value for key, value in form.items() if value is not None}, follow=True)


def apply(console: Client, confirmed: Any) -> None:
    """Apply the plan that the confirmed import has opened."""
    ((page, _status),) = confirmed.redirect_chain
    assert page.startswith("/plans/"), page
    console.post(f"{page}apply/")


def complaints(answer: Any) -> str:
    result = answer.context["result"]
    invalid = [str(row.error) for row in result.invalid_rows]
    return " ".join(invalid + [str(error.error) for _, errors in result.row_errors() for error in errors])


def test_a_dry_run_stores_nothing_and_the_confirmed_import_opens_a_plan_of_everything(
    console: Client, llm_team: Project, vision_team: Project, admin: User
) -> None:
    text = HEAD + "llm-team,h100,5.5,12,,,,,3,high,Q4\nvision-team,a100,2,,,,,512Gi,2,medium-low,Q4\n"
    shown = dry_run(console, text)
    assert not shown.context["result"].has_errors()
    assert llm_team.quotas.get().gpu_deserved == 4000
    assert not AuditRecord.objects.filter(action="quota.set").exists()
    llm_team.cluster.refresh_from_db()
    assert llm_team.cluster.generation == 1

    confirmed = confirm(console, shown)
    assert llm_team.quotas.get().gpu_deserved == 4000, "the plan makes the change"
    page = confirmed.content.decode()
    assert "2 quotas changed" in page
    assert "vision-team" in page
    apply(console, confirmed)
    quota = llm_team.quotas.get()
    assert (quota.gpu_deserved, quota.over_quota_weight, quota.rank) == (5500, 3, "high")
    assert vision_team.quotas.get(node_pool__name="a100").memory_limit == 512 * 2**30
    assert (quota.history.latest().history_user, quota.history.latest().history_change_reason) == (admin, "Q4")
    assert AuditRecord.objects.filter(action="quota.set").count() == 2
    assert AuditRecord.objects.filter(action="plan.create", channel="admin").count() == 1


def test_a_dry_run_shows_what_the_file_would_bring_with_it(
    console: Client, llm_team: Project, h100: NodePool, ledger: Ledger
) -> None:
    ledger.holds(llm_team, h100, Usage(Resources.of(gpu=4), Resources.of(gpu=0), Resources.of(gpu=4)))
    ledger.work[llm_team.pk, h100.name] = [EvictableWork("llm-team/train, low 40", Resources.of(gpu=4))]
    page = dry_run(console, HEAD + "llm-team,h100,1,12,,,,,2,medium-low,Q4\n").content.decode()
    assert "llm-team/train, low 40 (4 GPUs)" in page
    assert llm_team.quotas.get().gpu_deserved == 4000


def test_what_was_exported_changes_nothing_when_it_comes_back(console: Client, llm_team: Project) -> None:
    llm_team.quotas.update(over_quota_weight=2.5, memory_weight=1)
    text = exported(console)
    assert text.splitlines()[0] == HEAD.strip().replace("weight,", "weight,cpu_weight,memory_weight,")
    assert text.splitlines()[1] == "llm-team,h100,4,12,,,,,2.5,,1,medium-low,"
    shown = dry_run(console, text)
    assert shown.context["result"].totals["skip"] == 1
    assert not shown.context["result"].has_errors()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        pytest.param("llm-team,h100,5,12,,,,,2,medium-low,", "Give a reason", id="no reason"),
        pytest.param(
            "llm-team,h100,2,12,,,,,2,medium-low,Q4", "use 3 GPUs, more than 2 GPUs", id="below non-preemptible use"
        ),
        pytest.param("llm-team,h100,9,12,,,,,2,medium-low,Q4", "deserve 9 GPUs in total", id="over the department"),
        pytest.param("llm-team,h100,5,4,,,,,2,medium-low,Q4", "lower than the deserved", id="limit below deserved"),
        pytest.param("llm-team,h100,-5,4,,,,,2,medium-low,Q4", "out of range", id="negative"),
        pytest.param("llm-team,h100,x,4,,,,,2,medium-low,Q4", "not a quantity", id="no number"),
        pytest.param("llm-team,h100,5,12,,,,,2,urgent,Q4", "very-low, low", id="unknown rank"),
        pytest.param("nobody,h100,5,12,,,,,2,medium-low,Q4", "no project “nobody”", id="unknown project"),
        pytest.param(
            "llm-team,tpu,5,12,,,,,2,medium-low,Q4", "no node pool “tpu”. Known: a100, h100", id="unknown pool"
        ),
        pytest.param("llm-team,h100,,12,,,,,2,medium-low,Q4", "", id="no GPU figure"),
    ],
)
def test_a_refused_line_is_named_and_nothing_is_imported(
    console: Client, llm_team: Project, h100: NodePool, ledger: Ledger, line: str, complaint: str
) -> None:
    Department.objects.update(enforce_deserved=True)
    ledger.holds(llm_team, h100, Usage(Resources.of(gpu=3), Resources.of(gpu=3), Resources.of(gpu=3)))
    shown = dry_run(console, HEAD + line + "\n")
    result = shown.context["result"]
    assert result.has_errors() or result.has_validation_errors()
    assert complaint in complaints(shown)
    assert "confirm_form" not in shown.context
    assert llm_team.quotas.get().gpu_deserved == 4000


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("project\n", id="a header only"),
        pytest.param("a,b\n1,2\n", id="other columns"),
        pytest.param(HEAD + "llm-team\n", id="a short line"),
        pytest.param(HEAD + "\x00,\x00,1,,,,,,2,low,x\n", id="NUL"),
    ],
)
def test_files_that_are_no_quotas_are_refused_on_the_page(console: Client, llm_team: Project, content: str) -> None:
    dry_run(console, content)
    assert llm_team.quotas.get().gpu_deserved == 4000


def test_a_file_that_is_no_text_is_refused_on_the_page(console: Client, llm_team: Project) -> None:
    upload = SimpleUploadedFile("quotas.csv", b"\xff\xfe\x00\xd8", content_type="text/csv")
    answer = console.post(reverse("admin:tenants_projectquota_import"), {"format": "0", "import_file": upload})
    assert answer.status_code == 200


def test_departments_are_found_by_name_in_the_cluster_of_the_line(
    console: Client, cluster: Cluster, research: Department
) -> None:
    head = HEAD.replace("project,", "cluster,department,")
    line = "lab,research,h100,12,,,,,,2,medium-low,Q4\n"
    apply(console, confirm(console, dry_run(console, head + line, "departmentquota"), "departmentquota"))
    assert DepartmentQuota.objects.get(department=research).gpu_deserved == 12000
    elsewhere = dry_run(console, head + line.replace("lab", "moon"), "departmentquota")
    page = elsewhere.content.decode()
    assert "Line 2, column cluster" in page
    assert "There is no cluster “moon”. Known: lab." in page


@pytest.mark.parametrize(
    ("line", "column", "complaint"),
    [
        pytest.param("llm-team,h100,x,4,,,,,2,high,Q4", "gpu_deserved", "“x”: ", id="no number"),
        pytest.param("llm-team,h100,x,4,,,,,2,high,Q4", "gpu_deserved", "such as 6 or 0.5", id="an example"),
        pytest.param("llm-team,h100,5,12,,,lots,,2,high,Q4", "memory_deserved", "such as 512Gi", id="no memory"),
        pytest.param("llm-team,h100,5,12,,,,,lots,high,Q4", "over_quota_weight", "such as 2 or 0.5", id="no weight"),
        pytest.param("llm-team,h100,5,12,,,,,-1,high,Q4", "over_quota_weight", "“-1”: ", id="negative weight"),
        pytest.param("llm-team,h100,5,4,,,,,2,high,Q4", "gpu_limit", "“4”: ", id="limit below deserved"),
        pytest.param("llm-team,h100,99,,,,,,2,high,Q4", "gpu_deserved", "“99”: ", id="over the department"),
        pytest.param("llm-team,h100,5,12,,,,,2,urgent,Q4", "rank", "“urgent”", id="unknown rank"),
        pytest.param("nobody,h100,5,12,,,,,2,high,Q4", "project", "“nobody”", id="unknown project"),
        pytest.param(",h100,5,12,,,,,2,high,Q4", "project", "Enter the name of a project", id="no project"),
        pytest.param("llm-team,tpu,5,12,,,,,2,high,Q4", "node_pool", "Known: a100, h100", id="unknown pool"),
        pytest.param("llm-team,h100,,12,,,,,2,high,Q4", "gpu_deserved", "", id="no GPU figure"),
        pytest.param("llm-team,h100,6,12,,,,,2,high,", "reason", "Give a reason", id="no reason"),
    ],
)
def test_a_refused_cell_is_named_by_line_and_column_with_its_value(
    console: Client, llm_team: Project, line: str, column: str, complaint: str
) -> None:
    Department.objects.update(enforce_deserved=True)
    page = dry_run(console, f"{HEAD}llm-team,h100,5,12,,,,,2,high,Q4\n\n{line}\n").content.decode()
    assert f"Line 4, column {column}" in page
    assert complaint in page
    assert "Non field specific" not in page
    assert llm_team.quotas.get().gpu_deserved == 4000


def test_what_changed_since_the_dry_run_stops_the_whole_import(
    console: Client, llm_team: Project, vision_team: Project, h100: NodePool, ledger: Ledger
) -> None:
    lines = "vision-team,h100,6,,,,,,2,high,Q4\nllm-team,h100,3,12,,,,,2,high,Q4\n"
    shown = dry_run(console, HEAD + lines)
    ledger.holds(llm_team, h100, Usage(Resources.of(gpu=4), Resources.of(gpu=4), Resources.of(gpu=4)))
    assert "Nothing was imported" in confirm(console, shown).content.decode()
    assert vision_team.quotas.get().gpu_deserved == 4000


def test_a_file_that_changes_nothing_opens_no_plan(console: Client, llm_team: Project) -> None:
    shown = dry_run(console, HEAD + "llm-team,h100,4,12,,,,,2,medium-low,Q4\n")
    assert "The file changes nothing." in confirm(console, shown).content.decode()


@pytest.mark.usefixtures("vision_team")
def test_an_import_that_a_second_admin_has_to_approve_opens_its_plan_too(
    console: Client, llm_team: Project, admin: User
) -> None:
    PlanApproval.objects.create(department=llm_team.department, created_by="admin", created_at=timezone.now())
    confirmed = confirm(console, dry_run(console, HEAD + "llm-team,h100,5,12,,,,,2,medium-low,Q4\n"))
    apply(console, confirmed)
    assert llm_team.quotas.get().gpu_deserved == 4000, "its author cannot approve it"
    assert "approv" in confirmed.content.decode()


@pytest.mark.parametrize("name", ["nothing.csv", "../../etc/passwd", "x\x00"])
def test_a_confirmed_file_that_is_not_there_is_asked_for_again(console: Client, db: None, name: str) -> None:
    form = {"import_file_name": name, "original_file_name": "quotas.csv", "format": "0", "resource": ""}
    answer = console.post(reverse("admin:tenants_projectquota_process_import"), form, follow=True)
    assert answer.status_code == 200


def exported(console: Client) -> str:
    """The list as CSV."""
    answer = console.get(reverse("admin:tenants_projectquota_export"))
    assert answer["Content-Type"].startswith("text/csv")
    return answer.content.decode()
