"""Min guaranteed runtimes: what is refused, what each queue says in the end, and how the console sets them."""

from collections.abc import Callable
from datetime import timedelta

import jsonschema
import pytest
from django.test import Client
from django.urls import reverse

from clusters.flavours.registry import flavour_for
from clusters.flavours.volcano_config import KEY, facts_of
from clusters.inventory.models import Cluster, DirtyOwner
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, Forbidden, NotFound, ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.access.models import User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import MinRuntime
from tenants.quotas.selectors.desired_state import desired_state
from tenants.quotas.selectors.runtime_rules import guarantee_of, minutes_for
from tenants.quotas.services.runtime_rules import remove_min_runtime, set_min_runtime
from tests.clusters.schemas import KAI_QUEUE
from tests.factories.cast import acting, applied

MINUTE = timedelta(minutes=1)


def guarantee(owner: Department | Project, minutes: int) -> MinRuntime:
    return set_min_runtime(owner=owner, minutes=minutes, actor=SYSTEM)


def said(cluster: Cluster) -> dict[str, tuple[object, object]]:
    """What the queues of the pool h100 say in KAI: until when nobody preempts, until when nobody reclaims."""
    found = {}
    for manifest in flavour_for("kai").objects_for(desired_state(cluster)):
        if manifest["kind"] == "Queue" and manifest["spec"]["displayName"].endswith(" in h100"):
            jsonschema.validate(manifest, KAI_QUEUE)
            name = manifest["spec"]["displayName"].removesuffix(" in h100")
            found[name] = (manifest["spec"].get("preemptMinRuntime"), manifest["spec"].get("reclaimMinRuntime"))
    return found


@pytest.mark.parametrize(
    ("department", "project", "queues", "inside", "across"),
    [
        pytest.param(60, None, {"research": ("60m", "60m"), "llm-team": (None, None)}, 60, 60, id="inherited"),
        pytest.param(60, 20, {"research": ("60m", "60m"), "llm-team": ("20m", "20m")}, 20, 60, id="shortened"),
        pytest.param(60, 0, {"research": ("60m", "60m"), "llm-team": ("0m", "0m")}, 0, 60, id="given up"),
        pytest.param(None, 20, {"research": (None, None), "llm-team": ("20m", "20m")}, 20, 0, id="its own alone"),
    ],
)
def test_a_project_has_its_departments_or_less(
    cluster: Cluster,
    research: Department,
    llm_team: Project,
    department: int | None,
    project: int | None,
    queues: dict[str, tuple[object, object]],
    inside: int,
    across: int,
) -> None:
    for owner, minutes in ((research, department), (llm_team, project)):
        if minutes is not None:
            guarantee(owner, minutes)
    assert queues.items() <= said(cluster).items()
    found = guarantee_of(llm_team)
    assert found is not None
    assert (found.inside, found.across) == (inside * MINUTE, across * MINUTE)


def test_a_department_that_shortens_shortens_its_projects(
    cluster: Cluster, research: Department, llm_team: Project
) -> None:
    guarantee(research, 60)
    guarantee(llm_team, 50)
    before = Project.objects.get(pk=llm_team.pk).generation
    DirtyOwner.objects.all().delete()
    guarantee(research, 30)
    assert said(cluster)["llm-team"] == ("30m", "30m")
    assert Project.objects.get(pk=llm_team.pk).generation == before + 1
    assert {research.owner, llm_team.owner} <= set(DirtyOwner.objects.values_list("owner", flat=True))


def test_a_project_may_not_keep_others_waiting_for_longer(research: Department, llm_team: Project) -> None:
    guarantee(research, 60)
    with pytest.raises(Conflict) as longer:
        guarantee(llm_team, 61)
    assert "60 minutes" in longer.value.message
    assert not MinRuntime.objects.filter(project=llm_team).exists()


@pytest.mark.parametrize("minutes", [-1, 366 * 24 * 60 + 1])
def test_what_is_out_of_range_is_refused_at_its_field(llm_team: Project, minutes: int) -> None:
    with pytest.raises(ValidationFailed) as refused:
        guarantee(llm_team, minutes)
    assert refused.value.problems[0].pointer == "/minutes"


def test_a_lifted_rule_leaves_the_departments(cluster: Cluster, research: Department, llm_team: Project) -> None:
    guarantee(research, 60)
    remove_min_runtime(rule=guarantee(llm_team, 20), actor=SYSTEM, reason="Enough")
    assert said(cluster)["llm-team"] == (None, None)
    found = guarantee_of(llm_team)
    assert found is not None
    assert (found.rule_of, found.inside) == ("department research", 60 * MINUTE)
    assert AuditRecord.objects.get(action="min_runtime.lift").detail["before"] == 20


def test_who_may_not_set_quotas_may_not_guarantee(llm_team: Project, bob: User, charlie: User) -> None:
    with pytest.raises(Forbidden):
        set_min_runtime(owner=llm_team, minutes=1, actor=acting(bob))
    with pytest.raises(NotFound):
        set_min_runtime(owner=llm_team, minutes=1, actor=acting(charlie))


def test_the_console_sets_one_and_keeps_its_history(
    client_of: Callable[[User], Client], admin: User, research: Department, llm_team: Project
) -> None:
    guarantee(research, 60)
    console, page = client_of(admin), reverse("admin:tenants_minruntime_add")
    form = {"project": llm_team.pk, "minutes": 20, "reason": "Short runs"}
    for wrong, words in (({"minutes": 90}, "guarantees 60 minutes"), ({"project": ""}, "Choose a department")):
        answer = console.post(page, {**form, **wrong})
        assert words in str(answer.context["adminform"].form.errors)
    applied(console, console.post(page, form))
    rule = MinRuntime.objects.get(project=llm_team)
    assert "project llm-team" in console.get(reverse("admin:tenants_minruntime_changelist")).content.decode()
    history = console.get(reverse("admin:tenants_minruntime_history", args=[rule.pk])).content.decode()
    assert "Short runs" in history


@pytest.mark.parametrize(
    ("flavour", "deferring", "kept"),
    [
        pytest.param("kai", False, "Enforced by KAI Scheduler: partly.", id="kai"),
        pytest.param("kube", True, "Enforced by kube-scheduler: partly.", id="kube"),
        pytest.param("kube", False, "Enforced by kube-scheduler: no.", id="kube without the option"),
    ],
)
def test_the_project_page_says_it_and_whether_it_is_kept(
    client_of: Callable[[User], Client],
    alice: User,
    research: Department,
    llm_team: Project,
    flavour: str,
    deferring: bool,
    kept: str,
) -> None:
    Cluster.objects.update(flavour=flavour, defer_preemptors=deferring)
    guarantee(research, 60)
    guarantee(llm_team, 30)
    text = " ".join(client_of(alice).get(f"/projects/{llm_team.name}/").content.decode().split())
    assert "for 30 min within its department and for 1 h from other departments after they start (rule of " in text
    assert kept in text


@pytest.mark.parametrize(
    ("actions", "plugins", "kept"),
    [
        pytest.param("preempt", "{name: priority}, {name: cdp}", "partly. Pods have the minimum runtime", id="kept"),
        pytest.param(
            "preempt",
            "{name: cdp}, {name: gang}, {name: priority}",
            "partly. According to its configuration",
            id="not last",
        ),
        pytest.param(
            "preempt", "{name: priority}", "partly. According to its configuration on this cluster. Without", id="none"
        ),
        pytest.param("", "", "no. Assumption: default configuration, because it cannot be read", id="unread"),
    ],
)
def test_on_volcano_its_configuration_says_whether_it_is_kept_and_there_is_one_time_for_everybody(
    client_of: Callable[[User], Client],
    alice: User,
    research: Department,
    llm_team: Project,
    actions: str,
    plugins: str,
    kept: str,
) -> None:
    text = f'actions: "{actions}"\ntiers: [{{plugins: [{plugins}]}}]\n' if actions else ""
    Cluster.objects.update(flavour="volcano", configured=facts_of({"data": {KEY: text}}), defer_preemptors=True)
    guarantee(research, 60)
    guarantee(llm_team, 30)
    page = " ".join(client_of(alice).get(f"/projects/{llm_team.name}/").content.decode().split())
    assert (
        "preemptible workloads are protected from eviction for 30 min after they start (rule of project llm-team)"
        in page
    )
    assert f"Enforced by Volcano: {kept}" in page


@pytest.mark.parametrize(
    ("department", "project", "minutes"),
    [
        pytest.param(60, None, 60, id="inherited"),
        pytest.param(60, 20, 20, id="shortened"),
        pytest.param(60, 0, 0, id="given up"),
        pytest.param(None, 20, 20, id="its own alone"),
        pytest.param(None, None, 0, id="none"),
    ],
)
def test_where_pods_say_it_queues_say_nothing_and_what_pods_say_is_the_projects(
    research: Department, llm_team: Project, department: int | None, project: int | None, minutes: int
) -> None:
    Cluster.objects.update(flavour="volcano")
    for owner, time in ((research, department), (llm_team, project)):
        if time is not None:
            guarantee(owner, time)
    cluster = Cluster.objects.get()
    state = desired_state(cluster)
    queues = [*state.departments, *(queue for each in state.projects for queue in each.queues)]
    assert queues
    assert {each.min_runtime_minutes for each in queues} == {None}
    assert minutes_for(Project.objects.get(pk=llm_team.pk)) == minutes
