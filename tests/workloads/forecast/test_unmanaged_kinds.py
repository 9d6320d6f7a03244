"""Kinds that Kueue is configured to leave alone are refused where the user decides; what is not known is said."""

from collections.abc import Iterator
from typing import Any

import pytest

from clusters.connection.services.scheduler_config import guarantee_on
from clusters.flavours.kueue_capabilities import INTEGRATIONS, UNREAD
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Kind, ListPage, NotServed
from clusters.sandbox.services.simulation import SandboxGateway
from clusters.sync.services.reconcile import reconcile
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.workloads import bare_pod, deployment, job, spec_of
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.forecast.rules.forecast import Forecast
from workloads.forecast.selectors.preview import forecast
from workloads.lifecycle.services.actions import resume, stop

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab() -> Lab:
    lab = Lab("kueue")
    lab.look()
    return lab


@pytest.fixture
def team(lab: Lab) -> Project:
    return lab.project("llm-team")


def configure(*integrations: str) -> None:
    facts = {"integrations": list(integrations), "external": [], "narrowed": False, "fair": [], "impatient": False}
    Cluster.objects.update(configured=facts)


def ask(team: Project, manifest: dict[str, Any]) -> Forecast:
    fresh = Project.objects.select_related("cluster", "department").get(pk=team.pk)
    spec = spec_of(manifest, namespace=team.namespace, preemptibility="preemptible")
    return forecast(spec=spec, project=fresh, actor=SYSTEM)


@pytest.mark.parametrize("manifest", [deployment(), bare_pod()])
def test_it_is_refused_in_preview_and_submission_with_the_integration(
    lab: Lab, team: Project, manifest: dict[str, Any]
) -> None:
    configure("batch/job", "jobset.x-k8s.io/jobset")
    with pytest.raises(ValidationFailed) as preview:
        ask(team, manifest)
    fresh = Project.objects.select_related("cluster", "department").get(pk=team.pk)
    with pytest.raises(ValidationFailed) as submission:
        lab.submit(fresh, "alone", manifest=manifest)
    kind = manifest["kind"]
    for refusal in (preview.value, submission.value):
        assert (refusal.code, refusal.problems[0].pointer) == ("kind_not_managed", "/kind")
        assert refusal.message.startswith(
            f"Kueue on lab does not manage this kind: the integration {kind.lower()} is disabled in Kueue's "
            f"configuration, so a {kind} would run outside all quotas."
        )
    assert ask(team, job()).cautions == ()


def test_a_stopped_one_is_not_resumed_outside_every_quota(lab: Lab, team: Project) -> None:
    workload = lab.submit(team, "alone", manifest=deployment())
    stop(workload=fresh(workload), actor=SYSTEM)
    configure("batch/job")
    with pytest.raises(ValidationFailed, match="would run outside all quotas"):
        resume(workload=fresh(workload), actor=SYSTEM)


def test_where_nothing_is_known_nothing_is_refused_and_the_forecast_says_so(team: Project) -> None:
    answer = ask(team, deployment())
    assert any("Assumption: Kueue manages Deployment" in each for each in answer.cautions)
    configure(*INTEGRATIONS)
    assert not any("assumed" in each for each in ask(team, deployment()).cautions)


def test_a_cluster_that_lost_its_schedulers_kinds_is_named_in_the_forecast(
    lab: Lab, team: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.settle()
    real = SandboxGateway.pages

    def pages(self: SandboxGateway, kind: Kind) -> Iterator[ListPage]:
        if kind.kind == "ClusterQueue":
            raise NotServed(f"The cluster does not serve {kind.kind} of {kind.api_version}.")
        return real(self, kind)

    monkeypatch.setattr(SandboxGateway, "pages", pages)
    Cluster.objects.update(resync_due_at=None)
    reconcile(Cluster.objects.get(pk=lab.cluster.pk))
    assert ask(team, job()).cautions == (
        "Kueue is incomplete on lab, so its quotas may not be enforced. The cluster does not serve ClusterQueue "
        "of kueue.x-k8s.io/v1beta2.",
    )
    monkeypatch.undo()
    lab.settle()
    assert ask(team, job()).cautions == ()


def test_the_sandbox_manages_every_kind(lab: Lab, team: Project) -> None:
    lab.settle()
    cluster = Cluster.objects.get(pk=lab.cluster.pk)
    assert cluster.configured["integrations"] == list(INTEGRATIONS)
    assert guarantee_on(cluster, "quota_per_node_pool").enforced == "yes"
    assert ask(team, deployment()).cautions == ()


def test_the_clusters_page_says_what_is_off_and_what_is_not_known(lab: Lab, client: Any, admin_user: Any) -> None:
    client.force_login(admin_user)
    page = client.get(f"/clusters/{lab.cluster.name}/?tab=guarantees").content.decode()
    assert UNREAD.split("(")[0] in page.replace("&#x27;", "'")
    configure("batch/job")
    page = client.get(f"/clusters/{lab.cluster.name}/?tab=guarantees").content.decode().replace("&#x27;", "'")
    assert "Rung rejects workloads of the kinds JobSet, PyTorchJob" in page
