"""`rung apply` of every kind: made, exported the same, failing one by one, dry runs, translated from Kubernetes."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.inventory.models import Cluster
from portal.audit.models import AuditRecord
from rung_cli.errors import Unreachable
from rung_cli.http.client import Api
from rung_cli.manifests.kinds import KINDS
from tenants.access.models import AccessRole, Membership, ServiceAccount
from tenants.organisation.models import Department, Project
from tenants.quotas.models import IdleLimit, MinRuntime, PriorityCap, ProjectQuota, TimeLimit
from tests.cli.conftest import Rung
from tests.cli.fake_portal import Answer, portal_that
from workloads.dictionary.models import Priority
from workloads.notifications.models import NotificationChannel
from workloads.policies.models import Policy
from workloads.workload_templates.models import WorkloadTemplate

EVERYTHING = """
apiVersion: rung.dev/v1
kind: NotificationChannel
metadata: {name: mail}
spec:
  config: {smtpHost: mail.example.org, smtpPort: 587, from: rung@example.org, username: rung, recipients: [a@b.org]}
  passwordFrom: {env: MAIL_PASSWORD}
---
apiVersion: rung.dev/v1
kind: WorkloadTemplate
metadata: {name: night, type: Training, project: genomics}
spec: {description: Nightly, spec: {image: "docker.io/a/b:1", compute: {gpuDevicesRequest: 1}}}
---
apiVersion: rung.dev/v1
kind: Policy
metadata: {workloadType: training, department: biology, cluster: lab}
spec: {name: calm, defaults: {priorityClass: urgent}}
---
apiVersion: rung.dev/v1
kind: AccessRule
metadata: {subject: robot, subjectType: service-account, role: Auditor, project: genomics}
---
apiVersion: rung.dev/v1
kind: AccessRule
metadata: {subject: robot, subjectType: service-account, role: Viewer}
---
apiVersion: rung.dev/v1
kind: ServiceAccount
metadata: {name: robot}
spec: {enabled: false}
---
apiVersion: rung.dev/v1
kind: Role
metadata: {name: Auditor}
spec: {description: Looks, permissionSets: [view]}
---
apiVersion: rung.dev/v1
kind: Project
metadata: {name: genomics, cluster: lab, department: biology}
spec: {namespace: genes, quotas: {l40: {gpu: {deserved: 2, limit: 4}}}}
---
apiVersion: rung.dev/v1
kind: Department
metadata: {name: biology, cluster: lab}
spec: {enforceDeserved: true, quotas: {l40: {gpu: {deserved: 4}}}}
---
apiVersion: rung.dev/v1
kind: NodePool
metadata: {name: l40, cluster: lab}
spec: {labelKey: rung.dev/node-pool, labelValue: l40}
---
apiVersion: rung.dev/v1
kind: Cluster
metadata: {name: lab}
spec: {flavour: kai, deferPreemptors: false}
---
apiVersion: rung.dev/v1
kind: WorkloadType
metadata: {name: PyTorchJob}
spec: {priority: urgent}
---
apiVersion: rung.dev/v1
kind: Priority
metadata: {name: urgent}
spec: {value: 110}
---
apiVersion: rung.dev/v1
kind: MinRuntime
metadata: {project: genomics}
spec: {minutes: 0}
---
apiVersion: rung.dev/v1
kind: IdleLimit
metadata: {category: Deploy, department: biology, cluster: lab}
spec: {minutes: 90}
---
apiVersion: rung.dev/v1
kind: TimeLimit
metadata: {category: Build, project: genomics}
spec: {minutes: 600, noticeMinutes: 5}
---
apiVersion: rung.dev/v1
kind: PriorityCap
metadata: {priority: urgent, project: genomics}
spec: {gpuLimit: 2.5}
"""
GPUS = "requests.nvidia.com/gpu"


def quota(name: str, namespace: str, hard: dict[str, str], **spec: Any) -> str:
    """A ResourceQuota."""
    metadata = {"name": name, "namespace": namespace}
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard, **spec}}
    )


CLASS = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: gpu-training}
value: 1000
globalDefault: true
description: GPU training jobs
"""


@pytest.fixture
def everything(admin: Rung, monkeypatch: pytest.MonkeyPatch) -> str:
    """A document of each kind, and the secret that one of them names."""
    monkeypatch.setenv("MAIL_PASSWORD", "canary-password")
    return EVERYTHING


def writes() -> int:
    """How many changes were recorded."""
    return AuditRecord.objects.exclude(action="session.start").count()


def test_every_kind_is_made_exported_and_then_unchanged(admin: Rung, everything: str, tmp_path: Path) -> None:
    ended = admin("apply", "-f", "-", "--yes", stdin=everything)
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "15 created, 1 updated, 1 unchanged.")
    assert ended.out.splitlines()[0] == "Cluster lab: unchanged"
    assert "WorkloadType PyTorchJob: updated" in ended.out
    assert "AccessRule service-account robot: Auditor in project genomics: created" in ended.out
    assert not ServiceAccount.objects.get(name="robot").enabled
    assert Membership.objects.filter(service_account__name="robot", project__name="genomics").exists()
    assert Policy.objects.get().department == Project.objects.get(name="genomics").department
    assert WorkloadTemplate.objects.get().project == Project.objects.get(name="genomics")
    assert NotificationChannel.objects.get().config["smtpHost"] == "mail.example.org"
    assert PriorityCap.objects.get(project__name="genomics", priority="urgent").gpu_limit == 2500
    assert TimeLimit.objects.get(project__name="genomics").notice_minutes == 5
    assert IdleLimit.objects.get(department__name="biology").category == "Deploy"
    assert MinRuntime.objects.get(project__name="genomics").minutes == 0
    assert Department.objects.get(name="biology").enforce_deserved

    before, file = writes(), tmp_path / "all.yaml"
    file.write_text(admin("export").out)
    kinds = {each["kind"] for each in yaml.safe_load_all(file.read_text())}
    assert kinds == set(KINDS)
    assert admin("apply", "-f", "-", "--yes", stdin=everything).out.endswith("\n17 unchanged.\n")
    assert admin("apply", "-f", str(file), "--plan", "--prune").out == "No changes.\n"
    assert writes() == before
    assert "canary-password" not in ended.out + ended.err + file.read_text()


def test_a_failed_document_stops_only_what_depends_on_it(admin: Rung, everything: str) -> None:
    text = everything.replace("limit: 4}", "limit: 1}")
    ended = admin("apply", "-f", "-", "--yes", stdin=text)
    assert ended.code == 1
    lines = ended.out.splitlines()
    assert "Project genomics on lab: failed" in lines
    assert "WorkloadTemplate night (Training) in project genomics: skipped, depends on Project genomics on lab" in lines
    assert "Policy training in department biology on lab: created" in lines
    assert lines[-1] == "9 created, 1 updated, 1 failed, 5 skipped, 1 unchanged."
    assert "stdin, document 8: create Project genomics on lab: refused." in ended.err
    assert "lower than the deserved quota" in ended.err
    assert AccessRole.objects.filter(name="Auditor").exists()
    assert admin("apply", "-f", "-", "--yes", stdin=everything).code == 0


def test_programs_are_told_the_same(admin: Rung, everything: str) -> None:
    text = everything.replace("limit: 4}", "limit: 1}")
    ended = admin("apply", "-f", "-", "--yes", "-o", "json", stdin=text)
    results = {(each["kind"], each["name"]): each for each in ended.data}
    assert ended.code == 1
    assert results["Priority", "urgent"]["result"] == "created"
    assert results["Cluster", "lab"]["result"] == "unchanged"
    failed = results["Project", "genomics"]
    assert (failed["result"], failed["document"]) == ("failed", "stdin, document 8")
    assert failed["errors"][0]["pointer"] == "/resources/0/gpu/limit"
    assert yaml.safe_load(admin("apply", "-f", "-", "--yes", "-o", "yaml", stdin=text).out)[0]["action"] == "none"
    skipped = results["WorkloadTemplate", "night (Training) in project genomics"]
    assert (skipped["result"], skipped["message"]) == ("skipped", "depends on Project genomics on lab")


def test_a_plan_asks_the_portal_and_changes_nothing(admin: Rung, everything: str) -> None:
    before = writes()
    ended = admin("apply", "-f", "-", "--plan", stdin=everything)
    assert (ended.code, ended.err) == (2, "")
    assert "+ Policy training in department biology on lab" in ended.out
    assert "    not checked: depends on Department biology on lab" in ended.out
    assert writes() == before
    bad = everything.replace("value: 110", "value: 2000000000").replace("[view]", "[fly]")
    refused = admin("apply", "-f", "-", "--plan", "-o", "json", stdin=bad)
    results = {
        each["name"]: each["result"] for each in refused.data if each["kind"] in {"Priority", "Role", "NodePool"}
    }
    assert (refused.code, results) == (1, {"urgent": "refused", "Auditor": "refused", "l40": "accepted"})
    assert "would be refused: /permissionSets" in admin("apply", "-f", "-", "--plan", stdin=bad).out
    assert not Priority.objects.filter(name="urgent").exists()


def test_a_lost_connection_says_what_was_done_by_then(
    admin: Rung, everything: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = Api.post

    def breaking(api: Api, path: str, body: Any, **how: Any) -> Any:
        if path == "v1/node-pools":
            raise Unreachable("gone")
        return post(api, path, body, **how)

    monkeypatch.setattr(Api, "post", breaking)
    ended = admin("apply", "-f", "-", "--yes", stdin=everything)
    assert ended.code == 4
    assert "Priority urgent: created" in ended.out
    assert "Not confirmed: NodePool l40 on lab, Department biology on lab" in ended.err


def test_enforcement_and_deferral_are_planned_before_they_are_changed(admin: Rung, everything: str) -> None:
    assert admin("apply", "-f", "-", "--yes", stdin=everything).code == 0
    text = everything.replace("enforceDeserved: true", "enforceDeserved: false")
    text = text.replace("deferPreemptors: false", "deferPreemptors: true")
    ended = admin("apply", "-f", "-", "--plan", "-o", "json", stdin=text)
    titles = [plan["title"] for each in ended.data for plan in each.get("plans", ())]
    assert (ended.code, titles) == (2, ["Defer preemptors on lab", "Stop enforcing the deserved quota of biology"])
    assert Department.objects.get(name="biology").enforce_deserved
    assert admin("apply", "-f", "-", "--yes", stdin=text).code == 0
    assert not Department.objects.get(name="biology").enforce_deserved
    assert Cluster.objects.get(name="lab").defer_preemptors
    odd = everything.replace("enforceDeserved: true", "enforceDeserved: often")
    assert "/spec/enforceDeserved must be true or false." in admin("apply", "-f", "-", "--plan", stdin=odd).err


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("project: genomics}", "project: nowhere}", "unknown project nowhere: "),
        ("role: Auditor", "role: Wizard", "unknown role Wizard: "),
        ("department: biology, cluster: lab}\nspec: {name", "department: biology}\nspec: {name", "/metadata/cluster"),
        ("workloadType: training", "workloadType: napping", "/metadata/workloadType must be one of"),
        ("subjectType: service-account, role: Viewer", "subjectType: alien, role: Viewer", "/metadata/subjectType"),
        ("flavour: kai", "flavour: volcano", "flavour of Cluster lab is kai and cannot change"),
        ("metadata: {name: lab}", "metadata: {name: moon}", "A new one needs /spec/kubeconfigFrom"),
        ("passwordFrom: {env: MAIL_PASSWORD}", "passwordFrom: hunter2", "/spec/passwordFrom must be {env: NAME}"),
        ("priority: urgent, project", "priority: bogus, project", "unknown priority bogus: "),
        (
            "metadata: {project: genomics}\nspec: {minutes",
            "metadata: {cluster: lab}\nspec: {minutes",
            "must name a project",
        ),
        ("gpuLimit: 2.5", "gpuLimit: many", "/spec/gpuLimit must be a number"),
        ("{minutes: 90}", "{noticeMinutes: 5}", "/spec/minutes is missing"),
        ("username: rung", "password: hunter2", "/spec/config must be a mapping without secrets"),
    ],
)
def test_what_can_never_be_is_refused_before_anything_is_done(
    admin: Rung, everything: str, before: str, after: str, said: str
) -> None:
    assert before in everything
    ended = admin("apply", "-f", "-", "--yes", stdin=everything.replace(before, after, 1))
    assert (ended.code, said in ended.err) == (64, True), ended.err
    assert not Priority.objects.filter(name="urgent").exists()


def test_a_secret_that_is_not_set_is_missed_before_anything_is_done(
    admin: Rung, everything: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAIL_PASSWORD")
    ended = admin("apply", "-f", "-", "--yes", stdin=everything)
    assert (ended.code, "the environment variable MAIL_PASSWORD is not set" in ended.err) == (64, True)
    assert not Priority.objects.filter(name="urgent").exists()


def test_a_limit_that_a_project_already_says_is_neither_exported_again_nor_pruned(admin: Rung, everything: str) -> None:
    text = everything.replace(
        "{namespace: genes,", "{namespace: genes, schedulingRules: {trainingJobTimeLimitSeconds: 600},"
    )
    assert admin("apply", "-f", "-", "--yes", stdin=text).code == 0
    exported = list(yaml.safe_load_all(admin("export", "--kind", "TimeLimit").out))
    assert [each["metadata"]["category"] for each in exported] == ["Build"]
    assert admin("apply", "-f", "-", "--plan", "--prune", stdin=yaml.safe_dump_all(exported)).out == "No changes.\n"
    again = text.replace("spec: {minutes: 600, noticeMinutes: 5}", "spec: {minutes: 700}")
    assert "TimeLimit Build in project genomics: updated" in admin("apply", "-f", "-", "--yes", stdin=again).out
    assert TimeLimit.objects.get(category="Build").notice_minutes == 5


def test_what_one_may_not_see_is_left_out_of_an_export_and_told(signed_in: Rung) -> None:
    ended = signed_in("export", "-o", "name")
    assert ended.code == 0
    assert "project/llm-team" in ended.out
    assert "ServiceAccount is left out" in ended.err
    assert signed_in("export", "--kind", "ServiceAccount").code == 1


def test_a_clusters_credential_comes_from_the_environment_and_is_not_told(
    rung: Rung, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {
        "apiVersion": "rung.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": "blue"},
        "spec": {
            "flavour": "kai",
            "connection": {"server": "https://blue.example.org"},
            "tokenFrom": {"env": "BLUE_TOKEN"},
        },
    }
    made = {"uuid": "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "name": "blue"}
    monkeypatch.setenv("BLUE_TOKEN", "canary-token")
    with portal_that(Answer(body=[]), Answer(201, made)) as portal:
        for name, value in {"URL": portal.url, "CLIENT_ID": "me", "CLIENT_SECRET": "s"}.items():
            monkeypatch.setenv(f"RUNG_{name}", value)
        ended = rung("apply", "-f", "-", "--yes", stdin=yaml.safe_dump(document))
    assert (ended.code, ended.out) == (0, "Cluster blue: created\n1 created.\n")
    server, token = "https://blue.example.org", "canary-token"
    assert portal.requested[-1].body == {"name": "blue", "flavour": "kai", "server": server, "token": token}
    assert "canary-token" not in ended.out + ended.err


class TestKubernetesObjects:
    """They are shown as what they mean, and applied when that is wanted."""

    def test_they_are_shown_and_nothing_is_applied(self, admin: Rung, llm_team: Project) -> None:
        text = CLASS + "---\n" + quota("gpus", llm_team.namespace, {GPUS: "6", "pods": "9"})
        before = writes()
        ended = admin("apply", "-f", "-", "--yes", stdin=text)
        assert (ended.code, "Apply it with --translate." in ended.err) == (64, True)
        priority, project = yaml.safe_load_all(ended.out)
        assert priority == {
            "apiVersion": "rung.dev/v1",
            "kind": "Priority",
            "metadata": {"name": "gpu-training"},
            "spec": {
                "value": 1000,
                "preemptionPolicy": "PreemptLowerPriority",
                "description": "GPU training jobs",
            },
        }
        assert project["metadata"] == {"name": "llm-team", "cluster": "lab", "department": "research"}
        assert project["spec"]["quotas"]["h100"]["gpu"] == {"deserved": 4, "limit": 6}
        assert "globalDefault has no counterpart" in ended.err
        assert "pods has no counterpart and is left out" in ended.err
        assert writes() == before

    def test_translated_they_are_applied_once(self, admin: Rung, llm_team: Project) -> None:
        hard = {GPUS: "6", "requests.cpu": "500m", "requests.memory": "1Gi"}
        items = [yaml.safe_load(CLASS), yaml.safe_load(quota("all", llm_team.namespace, hard))]
        text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
        ended = admin("apply", "-f", "-", "--translate", "--yes", stdin=text)
        assert (ended.code, ended.out.splitlines()[-1]) == (0, "1 created, 1 updated.")
        row = ProjectQuota.objects.get(project=llm_team, node_pool__name="h100")
        assert (row.gpu_deserved, row.gpu_limit, row.cpu_limit, row.memory_limit) == (4000, 6000, 500, 2**30)
        assert Priority.objects.get(name="gpu-training").value == 1000
        assert admin("apply", "-f", "-", "--translate", "--plan", stdin=text).out == "No changes.\n"

    @pytest.mark.parametrize(("priorities", "code"), [(["gpu-training"], 0), (["gpu-training", "high"], 1)])
    def test_a_quota_of_one_priority_is_a_cap_and_one_of_several_is_not_left_out_silently(
        self, admin: Rung, llm_team: Project, priorities: list[str], code: int
    ) -> None:
        selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": priorities}]}
        text = CLASS + "---\n" + quota("cap", llm_team.namespace, {GPUS: "6", "pods": "3"}, scopeSelector=selector)
        ended = admin("apply", "-f", "-", "--translate", "--yes", stdin=text)
        assert (ended.code, "Priority gpu-training: created" in ended.out) == (code, True)
        caps = list(PriorityCap.objects.values_list("project__name", "priority", "gpu_limit"))
        assert caps == ([] if code else [("llm-team", "gpu-training", 6000)])
        said = (
            "counts the pods of gpu-training and high together" if code else "pods of one priority has no counterpart"
        )
        assert said in ended.err
        assert ("1 not translated" in ended.err) == bool(code)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (quota("gpus", "elsewhere", {GPUS: "6"}), "no project has the namespace elsewhere"),
            (quota("gpus", "llm-team", {GPUS: "many"}), "/spec/hard/requests.nvidia.com/gpu: 'many' is not an amount"),
            (CLASS.replace("value: 1000", "value: high"), "/value must be a whole number"),
            (CLASS.replace("metadata: {name: gpu-training}", "name: gpu-training"), "lost their indentation"),
        ],
    )
    def test_what_cannot_be_translated_is_refused_at_its_place(self, admin: Rung, text: str, said: str) -> None:
        ended = admin("apply", "-f", "-", "--translate", "--yes", stdin=text)
        assert (ended.code, said in ended.err) == (64, True), ended.err
