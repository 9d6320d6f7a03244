"""`rung export` and `rung apply`: the organisation as documents, planned, applied, and the same again."""

import html
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import timezone

from portal.audit.models import AuditRecord
from tenants.access.models import Role
from tenants.organisation.models import Department, Project
from tenants.quotas.models import ProjectQuota, TimeLimit
from tests.cli.conftest import Rung
from tests.factories.tenants import MembershipFactory
from workloads.dictionary.models import Priority, WorkloadType
from workloads.plans.models import PlanApproval

NEW = """
apiVersion: rung.dev/v1
kind: Priority
metadata: {name: urgent}
spec: {value: 110, description: For the deadline}
---
apiVersion: rung.dev/v1
kind: WorkloadType
metadata: {name: PyTorchJob}
spec: {priority: urgent, preemptibility: non-preemptible}
---
apiVersion: rung.dev/v1
kind: Project
metadata: {name: genomics, cluster: lab, department: biology}
spec:
  namespace: genes
  nodePools: [a100]
  schedulingRules: {trainingJobTimeLimitSeconds: 7200}
  quotas:
    h100: {gpu: {deserved: 2, limit: 4}, memory: {deserved: 64, units: GB}, overQuotaWeight: 3, rank: high}
---
apiVersion: rung.dev/v1
kind: Department
metadata: {name: biology, cluster: lab}
spec: {description: Cells, quotas: {h100: {gpu: {deserved: 4}}}}
"""


@pytest.fixture
def declared(tmp_path: Path) -> str:
    file = tmp_path / "organisation.yaml"
    file.write_text(NEW)
    return str(file)


def test_what_was_exported_changes_nothing_when_it_is_applied(rung: Rung, admin: Rung, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(rung("export").out)
    kinds = [each["kind"] for each in yaml.safe_load_all(file.read_text())]
    assert set(kinds) == {
        *("Priority", "WorkloadType", "Cluster", "NodePool", "Department", "Project"),
        *("ServiceAccount", "AccessRule"),
    }
    before = AuditRecord.objects.count()
    planned = rung("apply", "-f", str(file), "--plan", "--prune")
    assert (planned.code, planned.out) == (0, "No changes.\n")
    assert rung("apply", "-f", str(file), "--yes", "--prune").code == 0
    assert AuditRecord.objects.exclude(action="session.start").count() == before - 1


def test_weights_of_cpu_and_memory_survive_an_export(rung: Rung, admin: Rung, tmp_path: Path) -> None:
    ProjectQuota.objects.filter(project__name="llm-team").update(cpu_weight=0.5, memory_weight=0)
    file = tmp_path / "all.yaml"
    file.write_text(rung("export").out)
    assert rung("apply", "-f", str(file), "--plan").out == "No changes.\n"
    changed = [each for each in yaml.safe_load_all(file.read_text()) if each["metadata"].get("name") == "llm-team"]
    changed[0]["spec"]["quotas"]["h100"]["gpu"]["deserved"] = 3
    file.write_text(yaml.safe_dump_all(changed))
    assert rung("apply", "-f", str(file), "--yes").code == 0
    (quota,) = ProjectQuota.objects.filter(project__name="llm-team")
    assert (quota.gpu_deserved, quota.cpu_weight, quota.memory_weight) == (3000, 0.5, 0)


def test_a_plan_ends_with_2_says_every_field_and_changes_nothing(rung: Rung, admin: Rung, declared: str) -> None:
    ended = rung("apply", "-f", declared, "--plan")
    assert ended.code == 2
    assert "+ Priority urgent\n    value: 110" in ended.out
    assert "~ WorkloadType PyTorchJob\n    priority: low -> urgent" in ended.out
    assert "    quota of h100: memory deserved: 64000000000" in ended.out
    assert ended.out.endswith("3 to create, 1 to update, 0 to delete.\n")
    assert not Priority.objects.filter(name="urgent").exists()


def test_a_plan_says_where_a_second_admin_has_to_approve(rung: Rung, admin: Rung) -> None:
    PlanApproval.objects.create(department=None, created_by="admin", created_at=timezone.now())
    text = next(each for each in yaml.safe_load_all(rung("export", "--kind", "Project").out) if each["spec"]["quotas"])
    pool = next(iter(text["spec"]["quotas"].values()))
    pool["gpu"]["deserved"] = 1
    ended = rung("apply", "-f", "-", "--plan", stdin=yaml.safe_dump(text))
    assert "A second admin has to approve it, so rung apply is refused." in ended.out, ended.out + ended.err


def test_applying_makes_it_so_and_again_changes_nothing(rung: Rung, admin: Rung, declared: str) -> None:
    assert rung("apply", "-f", declared, "--yes").code == 0
    (quota,) = ProjectQuota.objects.filter(project__name="genomics", node_pool__name="h100")
    assert (quota.gpu_deserved, quota.gpu_limit, quota.memory_deserved) == (2000, 4000, 64 * 10**9)
    assert (quota.over_quota_weight, quota.rank) == (3, "high")
    made = Project.objects.get(name="genomics")
    assert (made.namespace, made.default_node_pools, made.department.description) == ("genes", ["a100"], "Cells")
    assert TimeLimit.objects.get(project=made).minutes == 120
    changed = WorkloadType.objects.get(name="PyTorchJob")
    assert (changed.priority.name if changed.priority else "", changed.preemptibility) == ("urgent", "non-preemptible")

    records = AuditRecord.objects.exclude(action="session.start").count()
    again = rung("apply", "-f", declared, "--plan")
    assert (again.code, again.out) == (0, "No changes.\n")
    assert rung("apply", "-f", declared, "--yes").code == 0
    assert AuditRecord.objects.exclude(action="session.start").count() == records


def test_what_a_document_leaves_out_stays(rung: Rung, admin: Rung) -> None:
    text = NEW.split("---")[2].replace("genomics", "llm-team").replace("biology", "research")
    only = yaml.safe_load(text)
    only["spec"] = {"description": "Language"}
    assert rung("apply", "-f", "-", "--yes", stdin=yaml.safe_dump(only)).code == 0
    team = Project.objects.get(name="llm-team")
    assert team.description == "Language"
    assert (team.quotas.get().gpu_deserved, team.quotas.get().gpu_limit) == (4000, 12000)


def test_pruning_deletes_what_no_document_names_children_first(rung: Rung, admin: Rung, declared: str) -> None:
    rung("apply", "-f", declared, "--yes")
    left = [
        each
        for each in yaml.safe_load_all(rung("export", "--kind", "Department", "--kind", "Project").out)
        if each["metadata"]["name"] not in {"genomics", "biology"}
    ]
    planned = rung("apply", "-f", "-", "--plan", "--prune", stdin=yaml.safe_dump_all(left))
    assert planned.out.splitlines()[:2] == ["- Project genomics on lab", "- Department biology on lab"]
    assert rung("apply", "-f", "-", "--yes", "--prune", stdin=yaml.safe_dump_all(left)).code == 0
    assert not Department.objects.filter(name="biology").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Project\n", "apiVersion must be rung.dev/v1"),
        (NEW.replace("deserved: 4}", "deserved: many}"), "amounts must be numbers"),
        (NEW.replace("description: Cells", "secret: x"), "/spec/secret: unknown field"),
        (NEW.replace("quotas: {h100", "quotas: {t4"), "lab has no node pool t4"),
        (NEW.replace("quotas: {h100: {", "quotas: {h100: {memory: {units: XX}, "), "/units must be one of"),
        (NEW.replace("priority: urgent", "priority: sooner"), "unknown priority sooner"),
        (NEW.replace("department: biology", "department: botany"), "lab has no department botany"),
        (NEW.replace("cluster: lab", "cluster: moon"), "unknown cluster moon"),
        (NEW.replace("name: PyTorchJob", "name: NoSuchJob"), "unknown WorkloadType NoSuchJob"),
        (NEW + "---" + NEW.split("---", maxsplit=1)[0], "Priority urgent is already in stdin, document 1"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_bad_document_is_refused_by_name_before_anything_is_done(
    rung: Rung, admin: Rung, text: str, said: str
) -> None:
    for how in ("--plan", "--yes"):
        ended = rung("apply", "-f", "-", how, stdin=text)
        assert ended.code == 64
        assert said in ended.err
    assert not Priority.objects.filter(name="urgent").exists()


def test_a_refusal_of_the_server_names_the_step_and_what_was_done_stays(rung: Rung, admin: Rung) -> None:
    text = NEW.replace("limit: 4}", "limit: 1}")
    ended = rung("apply", "-f", "-", "--yes", stdin=text)
    assert ended.code == 1
    assert "create Project genomics on lab" in ended.err
    assert Department.objects.filter(name="biology").exists()
    assert rung("apply", "-f", "-", "--yes", stdin=NEW).code == 0


def test_nothing_is_done_without_a_yes(rung: Rung, admin: Rung, declared: str) -> None:
    assert rung("apply", "-f", declared).code == 64
    refused = rung("apply", "-f", declared, stdin="n\n", terminal=True)
    assert (refused.code, "+ Priority urgent" in refused.err) == (1, True)
    assert not Priority.objects.filter(name="urgent").exists()
    assert rung("apply", "-f", declared, stdin="y\n", terminal=True).code == 0
    assert Priority.objects.filter(name="urgent").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("preemptibility: non-preemptible", "preemptibility: semi-preemptible"),
        ("rank: high", "rank: medium_low"),
        ("overQuotaWeight: 3", "overQuotaWeight: null"),
    ],
)
def test_however_a_value_is_written_it_settles(rung: Rung, admin: Rung, before: str, after: str) -> None:
    assert before in NEW
    assert rung("apply", "-f", "-", "--yes", stdin=NEW.replace(before, after)).code == 0
    assert rung("apply", "-f", "-", "--plan", stdin=NEW.replace(before, after)).code == 0


class TestAWithdrawnType:
    """It is not exported; declared nevertheless, it is offered again, once."""

    @pytest.fixture(autouse=True)
    def _withdrawn(self, rung: Rung, admin: Rung) -> None:
        WorkloadType.objects.filter(name="PyTorchJob").update(withdrawn_at=timezone.now())

    def test_an_export_leaves_it_out_and_applies_as_it_is(self, rung: Rung, tmp_path: Path) -> None:
        file = tmp_path / "all.yaml"
        file.write_text(rung("export").out)
        assert "PyTorchJob" not in file.read_text()
        assert rung("apply", "-f", str(file), "--plan", "--prune").out == "No changes.\n"

    def test_a_document_that_names_it_offers_it_again_and_then_changes_nothing(self, rung: Rung) -> None:
        text = yaml.safe_dump({**yaml.safe_load(NEW.split("---")[1]), "spec": {"preemptibility": "non-preemptible"}})
        assert "+ WorkloadType PyTorchJob" in rung("apply", "-f", "-", "--plan", stdin=text).out
        assert rung("apply", "-f", "-", "--yes", stdin=text).code == 0
        row = WorkloadType.objects.get(name="PyTorchJob")
        assert (row.withdrawn_at, row.priority.name if row.priority else "", row.preemptibility) == (
            None,
            "low",
            "non-preemptible",
        )
        assert rung("apply", "-f", "-", "--plan", stdin=text).out == "No changes.\n"


def test_the_document_of_a_projects_page_is_what_is_there(
    rung: Rung, admin: Rung, client_of: Any, llm_team: Project
) -> None:
    person = MembershipFactory(role=Role.PLATFORM_ADMIN, project=None).user
    page = client_of(person).get("/projects/llm-team/").content.decode()
    found = re.search(r'id="copy-text-yaml">(.*?)</pre>', page, re.DOTALL)
    assert found
    planned = rung("apply", "-f", "-", "--plan", stdin=html.unescape(found[1]))
    assert (planned.code, planned.out) == (0, "No changes.\n")
