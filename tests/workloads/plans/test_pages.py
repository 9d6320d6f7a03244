"""Pages of plans: the list with its filter, one plan, apply and roll back."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import strip_tags

from clusters.inventory.models import Cluster
from clusters.sync.models import SyncRun, SyncState
from clusters.sync.selectors import syncs_since
from portal.kit.security.actors import Actor
from tenants.access.models import User
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tenants.quotas.selectors.reclaims import reclaim_changes
from tests.factories.clusters import ClusterFactory, SyncRunFactory
from tests.factories.tenants import GPU
from workloads.plans.models import Plan
from workloads.plans.services.plans import plan_change

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]


def plan_cluster(plan: Plan) -> Cluster:
    """The cluster whose objects the plan changes."""
    return Cluster.objects.get(name=plan.effect["objects"][0]["cluster"])


@pytest.fixture
def plan(llm_team: Project, as_admin: Actor) -> Plan:
    change = {"project": "llm-team", "pool": "h100", "values": {"gpu_deserved": 20 * GPU, "gpu_limit": None}}
    return plan_change(kind="project_quota", change={**change, "reason": "More"}, actor=as_admin)


def test_a_plan_of_a_quota_is_shown_applied_and_rolled_back(client_of: Clients, admin: User, plan: Plan) -> None:
    client = client_of(admin)
    page = " ".join(client.get(f"/plans/{plan.pk}/").content.decode().split())
    assert "GPUs deserved: 4 GPUs → 20 GPUs" in page
    assert "GPU limit: 12 GPUs → unlimited" in page
    assert "projects of research in h100 of lab: 4 → 20 GPUs deserved, department quota 8" in page
    assert "(over-committed)" in page
    assert client.post(f"/plans/{plan.pk}/apply/")["Location"] == "/plans/"
    assert ProjectQuota.objects.get().gpu_deserved == 20 * GPU
    assert "Roll back" in client.get(f"/plans/{plan.pk}/").content.decode()
    client.post(f"/plans/{plan.pk}/roll-back/")
    back = Plan.objects.get(rolls_back=plan)
    assert "20 GPUs → 4 GPUs" in client.get(f"/plans/{back.pk}/").content.decode()
    client.post(f"/plans/{back.pk}/apply/")
    assert ProjectQuota.objects.get().gpu_deserved == 4 * GPU


def test_applying_says_that_clusters_are_updated_only_where_objects_change(
    client_of: Clients, admin: User, as_admin: Actor, plan: Plan
) -> None:
    def message(applied: Plan) -> str:
        page = client.post(f"/plans/{applied.pk}/apply/", follow=True).content.decode()
        return " ".join(strip_tags(page[page.index("Applied: ") :][:300]).split())

    client = client_of(admin)
    assert message(plan).startswith(f"Applied: {plan.title}. The clusters are being updated.")
    approval = plan_change(kind="approval", change={"department": "research", "required": True}, actor=as_admin)
    assert not approval.effect["objects"]
    said = message(approval)
    assert said.startswith(f"Applied: {approval.title}.")
    assert "being updated" not in said


def test_a_policy_that_locks_the_priority_ends_its_sentence_with_one_full_stop(
    llm_team: Project, as_admin: Actor
) -> None:
    document = {"defaults": {}, "rules": {"priorityClass": {"canEdit": False}}}
    change = {"department": "research", "kind": "training", "name": "fixed", "document": document}
    sentence = plan_change(kind="policy", change=change, actor=as_admin).effect["sentence"]
    assert "cannot be changed" in sentence
    assert ".." not in sentence


def test_changed_reclaims_are_counted_below_their_table(
    client_of: Clients, admin: User, llm_team: Project, vision_team: Project, as_admin: Actor
) -> None:
    plan = plan_change(
        kind="project_quota",
        change={"project": "llm-team", "pool": "h100", "values": {"gpu_deserved": 5 * GPU}},
        actor=as_admin,
    )
    pair = {"cluster": "lab", "pool": "h100", "taker": f"project {llm_team.pk}", "giver": f"project {vision_team.pk}"}
    plan.effect["reclaims"] = reclaim_changes({tuple(pair.values()): 4 * GPU}, {tuple(pair.values()): 5 * GPU})
    plan.save()
    page = " ".join(strip_tags(client_of(admin).get(f"/plans/{plan.pk}/").content.decode()).split())
    assert "0 relations gained (+), 0 lost (−), 1 changed (~)." in page


def test_the_reason_of_a_plan_is_on_its_page_and_in_the_list(client_of: Clients, admin: User, plan: Plan) -> None:
    client = client_of(admin)
    assert "Reason: More" in client.get(f"/plans/{plan.pk}/").content.decode()
    assert "Reason: More" in client.get("/plans/").content.decode()


def test_the_list_says_what_each_plan_changes(client_of: Clients, admin: User, plan: Plan) -> None:
    page = client_of(admin).get("/plans/").content.decode()
    assert "Project llm-team in h100: GPUs deserved 4 → 20, GPU limit 12 → unlimited." in page


def test_an_applied_plan_shows_whether_a_sync_run_has_put_it_on_the_cluster(
    client_of: Clients, admin: User, plan: Plan
) -> None:
    def shown() -> str:
        return " ".join(strip_tags(client.get(f"/plans/{plan.pk}/").content.decode()).split())

    def ran(state: SyncState, generation: int) -> SyncRun:
        ended = timezone.now()
        return SyncRunFactory(cluster=cluster, state=state, generation=generation, finished_at=ended)

    client, cluster = client_of(admin), plan_cluster(plan)
    assert "synced" not in shown()
    client.post(f"/plans/{plan.pk}/apply/")
    cluster.refresh_from_db()
    SyncRunFactory(
        cluster=cluster,
        state="succeeded",
        generation=cluster.generation,
        started_at=timezone.now() - timedelta(hours=1),
    )
    ran(SyncState.SUCCEEDED, cluster.generation - 1)
    assert f"lab: not synced since. Next try: {cluster.sync_due_at:%Y-%m-%d %H:%M:%S}" in shown()
    assert "before the plan was applied" in shown()
    failed = ran(SyncState.PARTIAL, cluster.generation)
    assert "lab: not synced since. The last sync run failed. Next try: " in shown()
    assert f'href="/clusters/lab/runs/{failed.pk}/"' in client.get(f"/plans/{plan.pk}/").content.decode()
    good = ran(SyncState.SUCCEEDED, cluster.generation)
    ran(SyncState.FAILED, 0)
    assert f"lab: synced {good.finished_at:%Y-%m-%d %H:%M:%S}" in shown()
    assert f'href="/clusters/lab/runs/{good.pk}/"' in client.get(f"/plans/{plan.pk}/").content.decode()


def test_an_outdated_plan_says_what_changed_and_is_planned_again(
    client_of: Clients, admin: User, vision_team: Project, plan: Plan
) -> None:
    client = client_of(admin)
    path = f"/plans/{plan.pk}/"
    assert "Out of date" not in client.get(path).content.decode()
    ProjectQuota.objects.filter(project=vision_team).update(gpu_deserved=68 * GPU)
    page = client.get(path).content.decode()
    assert "Out of date" in page
    assert "all projects in h100 of lab: 8 GPUs deserved → 72 GPUs deserved" in page
    assert (f"{path}apply/" in page, f"{path}discard/" in page) == (False, True)
    refused = client.post(f"{path}apply/", follow=True)
    assert (refused.status_code, refused.redirect_chain) == (200, [(path, 302)])
    assert "The configuration changed after this plan was created: " in refused.content.decode()
    again = client.post(f"{path}again/")
    fresh = Plan.objects.exclude(pk=plan.pk).get()
    assert (again["Location"], fresh.change) == (f"/plans/{fresh.pk}/", plan.change)
    assert "Out of date" not in client.get(f"/plans/{fresh.pk}/").content.decode()
    client.post(f"/plans/{fresh.pk}/apply/")
    assert ProjectQuota.objects.get(project__name="llm-team").gpu_deserved == 20 * GPU
    twice = client.post(f"/plans/{fresh.pk}/discard/", follow=True).content.decode()
    assert "This plan is already applied or discarded." in twice


def test_an_expired_rollback_is_planned_again_as_a_rollback(client_of: Clients, admin: User, plan: Plan) -> None:
    client = client_of(admin)
    client.post(f"/plans/{plan.pk}/apply/")
    client.post(f"/plans/{plan.pk}/roll-back/")
    back = Plan.objects.get(rolls_back=plan)
    Plan.objects.filter(pk=back.pk).update(expires_at=timezone.now())
    assert f"/plans/{back.pk}/again/" in client.get(f"/plans/{back.pk}/").content.decode()
    client.post(f"/plans/{back.pk}/again/")
    assert Plan.objects.filter(rolls_back=plan).count() == 2


def test_the_syncs_of_a_plan_take_as_many_queries_for_many_clusters_as_for_one(llm_team: Project) -> None:
    names = ["lab", *(ClusterFactory(name=f"c{number}").name for number in range(4))]
    for cluster in Cluster.objects.all():
        SyncRunFactory(cluster=cluster, state="succeeded", generation=9)
    with CaptureQueriesContext(connection) as queries:
        found = syncs_since(timezone.now() - timedelta(minutes=1), dict.fromkeys(names, 9))
    assert ([each.state for each in found], len(queries)) == (["synced"] * 5, 2)


def test_the_list_filters_by_state_and_pages(client_of: Clients, admin: User, plan: Plan) -> None:
    client = client_of(admin)
    assert plan.title in client.get("/plans/?state=open").content.decode()
    Plan.objects.update(expires_at=timezone.now() - timedelta(hours=1))
    assert plan.title not in client.get("/plans/?state=open").content.decode()
    assert plan.title in client.get("/plans/?state=expired").content.decode()
    rows = [
        Plan(
            kind="quotas",
            title=f"Plan {n}",
            change={},
            effect={},
            based_on="",
            created_by="admin",
            created_at=plan.created_at,
            expires_at=plan.created_at,
        )
        for n in range(55)
    ]
    Plan.objects.bulk_create(rows)
    assert "Next page" in client.get("/plans/").content.decode()


def test_plans_of_others_are_404_and_not_listed(client_of: Clients, charlie: User, plan: Plan) -> None:
    client = client_of(charlie)
    assert "No plans" in client.get("/plans/").content.decode()
    assert client.get(f"/plans/{plan.pk}/").status_code == 404
    for verb in ("apply", "discard", "roll-back"):
        assert client.post(f"/plans/{plan.pk}/{verb}/").status_code == 404
    assert Plan.objects.get().state == "open"


def test_who_could_start_and_how_many_more_are_affected_is_on_the_page(
    client_of: Clients, admin: User, plan: Plan
) -> None:
    one = {"id": str(plan.pk), "name": "big", "project": "llm-team", "priority": "low", "value": 40}
    plan.effect["workloads"]["no_longer_fit"] = {"count": 21, "examples": [one]}
    named = {"id": str(plan.pk), "name": "small", "project": "llm-team", "gpus": 2, "evicts": True}
    plan.effect["starts"] = {"estimated": True, "tried": 25, "more": True, "workloads": [named]}
    plan.save()
    text = strip_tags(client_of(admin).get(f"/plans/{plan.pk}/").content.decode())
    text = " ".join(text.split())
    assert "21 no longer fit their quota big llm-team, low 40 and 20 more" in text
    assert "Could start with the new quotas, of 25 waiting workloads tried each by itself: small" in text
    assert "(llm-team, 2 GPUs, evicting others). Others that wait were not tried." in text


def test_a_plan_of_a_single_setting_says_how_many_more_it_affects(client_of: Clients, admin: User, plan: Plan) -> None:
    one = {"id": str(plan.pk), "name": "big", "project": "llm-team", "priority": "low", "value": 40}
    plan.kind, plan.effect["workloads"]["evicted"] = "scheduler", {"count": 6, "examples": [one]}
    plan.change = {"cluster": "lab", "flavour": "kueue"}
    plan.save()
    assert "and 5 more" in client_of(admin).get(f"/plans/{plan.pk}/").content.decode()
