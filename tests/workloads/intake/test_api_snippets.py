"""What the submit pages hold, copied as curl, Python and rung and run by a shell, makes the very same workload."""

import html
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.kit.pages.api_snippets import here_document
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role, User
from tenants.access.services import subjects
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.support.repository import ROOT
from tests.support.rest_clients import Robot
from workloads.dictionary.models import WorkloadType
from workloads.dictionary.selectors import plan_requests
from workloads.dictionary.services.plans import plan_priority_change, plan_type_change
from workloads.intake import FormFields, read_form
from workloads.intake.serializers import native_spec, says_the_same
from workloads.intake.services import grants_of
from workloads.plans.models import Plan
from workloads.state.models import Workload
from workloads.submission.views import example_text

Clients = Callable[[User], Client]
FORM, TEXT = "/workloads/submit/", "/workloads/submit/yaml/"
CHECK = {"HX-Request": "true", "HX-Target": "forecast"}
NASTY = """python -c 'print("$(id) `id` $HOME \\\\ JSON")' "it's" '<script>' é"""
FORMS: dict[str, dict[str, Any]] = {
    "a training": {"type": "Training", "command": NASTY, "environment": "A=x y\nB=$RUNG_TOKEN'\"", "priority": "high"},
    "a share of a GPU": {
        "type": "Training",
        "gpus": "0.5",
        "cpu": "500m",
        "memory": "2Gi",
        "checkpoint_interval": "9m",
    },
    "a gang": {"type": "Distributed", "workers": "2", "framework": "PyTorch", "preemptibility": "preemptible"},
    "a notebook": {"type": "Workspace", "port": "8888", "grace_seconds": "20", "node_pool": "a100"},
    "a service": {"type": "Inference", "replicas": "2", "port": "8000"},
}


def filled(**more: Any) -> dict[str, Any]:
    return {"project": "llm-team", "name": "train", "image": "docker.io/team/train:1", "gpus": "1", **more}


def copied(client: Client, where: str, sent: dict[str, Any]) -> dict[str, str]:
    """Every tab's text, as a browser shows it."""
    answer = client.post(where, sent, headers=CHECK).content.decode()
    found = re.findall(r'<pre[^>]*id="copy-text-(\w+)">(.*?)</pre>', answer, re.DOTALL)
    return {name: html.unescape(text) for name, text in found}


@pytest.fixture
def script(live_server: Any, socket_enabled: None, llm_team: Project, tmp_path: Path) -> Callable[..., None]:
    """Runs a program as somebody with an access key would."""
    account, secret = subjects.create_service_account(name="pipeline", actor=SYSTEM, role=Role.MEMBER, project=llm_team)
    keys = {"RUNG_CLIENT_ID": account.client_id, "RUNG_CLIENT_SECRET": secret, "RUNG_URL": str(live_server)}
    token = Robot("shell", role=Role.MEMBER, project=llm_team).client.defaults["HTTP_AUTHORIZATION"].split()[1]
    env = {**os.environ, **keys, "RUNG_TOKEN": token, "PYTHONPATH": str(ROOT / "cli"), "RUNG_CONFIG": str(tmp_path)}

    def run(*command: str, text: str) -> None:
        done = subprocess.run(command, input=text, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"

    return run


def made() -> dict[str, Any]:
    """What the newest workload became; its name is free again."""
    workload = Workload.objects.select_related("type", "priority").get(deleted_at=None)
    Workload.objects.update(deleted_at=timezone.now())
    standing = (workload.type.name, workload.priority.name, workload.preemptibility, workload.node_pools)
    told = {key: value for key, value in workload.spec.items() if key not in {"source", "warnings", "roles"}}
    return {"standing": standing, **told, "roles": sorted(workload.spec["roles"], key=lambda role: str(role["name"]))}


@pytest.mark.django_db(transaction=True)
def test_the_text_makes_what_the_form_makes(client_of: Clients, alice: User, live_server: Any, script: Any) -> None:
    client = client_of(alice)
    client.defaults["HTTP_HOST"] = str(live_server).removeprefix("http://")
    for name in ("a training", "a gang"):
        assert client.post(FORM, filled(**FORMS[name])).status_code == 302
        wanted = made()
        texts = copied(client, FORM, filled(**FORMS[name]))
        assert list(texts) == ["yaml", "curl", "rung", "python"]
        script("bash", "-eu", text=texts["curl"])
        assert made() == wanted, name
        script(sys.executable, "-", text=texts["python"])
        assert made() == wanted, name
        rung = texts["rung"].replace("rung ", f"{sys.executable} -m rung_cli ", 1)
        script("bash", "-eu", text=rung)
        assert made() == wanted, name


@pytest.mark.django_db
def test_every_tab_says_where_and_hides_who(client_of: Clients, alice: User) -> None:
    texts = copied(client_of(alice), FORM, filled(type="Training"))
    assert "http://testserver/api/v1/workloads/trainings" in texts["curl"]
    assert '@<(printf %s "Authorization: Bearer $RUNG_TOKEN")' in texts["curl"]
    assert 'os.environ["RUNG_CLIENT_SECRET"]' in texts["python"]
    assert texts["rung"].startswith("rung submit --project llm-team train --type training")
    assert texts["yaml"].startswith("# A manifest runs as type Job, not Training")


@pytest.mark.django_db
def test_a_file_is_copied_as_its_manifests(client_of: Clients, alice: User) -> None:
    texts = copied(
        client_of(alice), TEXT, {"project": "llm-team", "text": example_text("llm-finetune"), "priority": "high"}
    )
    assert "/api/v2/workloads" in texts["curl"]
    assert "priorityClassName: high" in texts["yaml"]
    assert texts["rung"].startswith("rung submit --project llm-team -f - <<'YAML'\n")


@pytest.mark.django_db
def test_a_form_that_only_a_manifest_says_tells_so(client_of: Clients, alice: User) -> None:
    form = filled(type="HuggingFaceInference", model="org/model", image="docker.io/vllm/vllm-openai:v0.10.0")
    texts = copied(client_of(alice), FORM, form)
    assert texts["curl"].startswith("# A manifest runs as type Deployment, not HuggingFaceInference")
    assert "/api/v2/workloads" in texts["curl"]


@pytest.mark.django_db
def test_a_refused_form_has_nothing_to_copy(client_of: Clients, alice: User) -> None:
    assert copied(client_of(alice), FORM, filled(type="Training", gpus="many")) == {}


@pytest.mark.django_db
@pytest.mark.parametrize("name", FORMS)
def test_a_native_body_means_the_forms_workload(llm_team: Project, name: str) -> None:
    texts = {"priority", "preemptibility", "command", "checkpoint_interval", "cpu", "memory", "framework"}
    given: dict[str, Any] = {"gpus": "1"}
    given |= {key: value for key, value in FORMS[name].items() if key in texts | {"type", "gpus"}}
    numbers: dict[str, Any] = {
        key: int(FORMS[name][key]) for key in ("workers", "replicas", "port", "grace_seconds") if key in FORMS[name]
    }
    fields = FormFields(name="train", image="docker.io/team/train:1", **given, **numbers)
    body, scope = native_spec(fields), grants_of(llm_team)
    assert body is not None
    assert says_the_same(fields, body, read_form(fields, scope=scope), scope)
    assert not says_the_same(fields, body | {"image": "docker.io/other:1"}, read_form(fields, scope=scope), scope)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"op": "add", "name": "urgent", "value": 91, "preemption_policy": "Never"}, id="a new one"),
        pytest.param({"op": "change", "name": "low", "value": 41, "description": "it's $HOME"}, id="a change"),
        pytest.param({"op": "rename", "name": "low", "new_name": "lowest"}, id="a rename"),
        pytest.param({"op": "retire", "name": "medium-low"}, id="a removal"),
    ],
)
def test_a_plans_call_plans_the_same(
    client_of: Clients, admin: User, llm_team: Project, change: dict[str, Any]
) -> None:
    plan = plan_priority_change(change=change, actor=acting(admin))
    text = client_of(admin).get(f"/plans/{plan.pk}/").content.decode()
    assert "http://testserver/api/v1/workload-priorities" in html.unescape(text)
    (call,) = plan_requests(plan)
    answer = Robot("admin-robot", role=Role.PLATFORM_ADMIN).send(call.verb, call.path.removeprefix("/api/"), call.body)
    assert answer.status_code in {200, 201}, answer.content
    assert Plan.objects.exclude(pk=plan.pk).get().effect["objects"] == plan.effect["objects"]


@pytest.mark.django_db
def test_a_types_plan_is_a_call_by_ids(client_of: Clients, admin: User, llm_team: Project) -> None:
    row = WorkloadType.objects.get(name="Training")
    plan = plan_type_change(type=row, change={"priority": "medium"}, actor=acting(admin))
    text = html.unescape(client_of(admin).get(f"/plans/{plan.pk}/").content.decode())
    assert f"client.workloads.workload_properties.update_workload_type('{row.pk}'" in text
    (call,) = plan_requests(plan)
    Robot("admin-robot", role=Role.PLATFORM_ADMIN).send(call.verb, call.path.removeprefix("/api/"), call.body)
    row.refresh_from_db()
    assert row.priority is not None
    assert row.priority.name == "medium"


def test_a_text_cannot_end_its_here_document() -> None:
    text = "a\nYAML\nYAML_\nb"
    said = subprocess.run(
        ["bash", "-c", f"cat {here_document(text, 'YAML')}"], capture_output=True, text=True, check=True
    )
    assert said.stdout == text + "\n"
