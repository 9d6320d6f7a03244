"""Quotas in the admin console: typed in GPUs, with a reason; refusals stand at their field."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from clusters.inventory.models import Cluster, NodePool
from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from scheduling.model.resources import Resources
from tenants.access.models import User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import PriorityCap, ProjectQuota
from tenants.quotas.services import quotas
from tenants.usage.rules import EvictableWork
from tenants.usage.selectors import Usage
from tests.factories.cast import Ledger, applied
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, MembershipFactory, UserFactory
from workloads.plans.models import Plan


@pytest.fixture
def console(client_of: Callable[[User], Client], admin: User) -> Client:
    """The console as admin sees it."""
    return client_of(admin)


def typed(**changes: str) -> dict[str, str]:
    """A filled-in form."""
    form = {
        "gpu_deserved": "4",
        "gpu_limit": "12",
        "cpu_deserved": "",
        "cpu_limit": "",
        "memory_deserved": "",
        "memory_limit": "",
        "over_quota_weight": "2",
        "rank": "medium-low",
        "reason": "Grant 7",
    }
    return {**form, **changes}


def saved(client: Client, page: str, form: dict[str, str]) -> Plan:
    """The plan that a save opens, applied; answers it."""
    answer = client.post(page, form)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    plan = Plan.objects.latest("created_at")
    assert answer["Location"] == f"/plans/{plan.pk}/"
    assert client.post(f"{answer['Location']}apply/").status_code == 302
    return plan


def page_of(quota: ProjectQuota) -> str:
    return reverse("admin:tenants_projectquota_change", args=[quota.pk])


def errors_of(answer: Any) -> dict[str, list[str]]:
    assert answer.status_code == 200
    return dict(answer.context["adminform"].form.errors)


@pytest.fixture
def quota(llm_team: Project) -> ProjectQuota:
    """llm-team in h100: 4 GPUs deserved, at most 12."""
    return llm_team.quotas.get()


def test_gpus_are_typed_and_shown_as_gpus(console: Client, quota: ProjectQuota) -> None:
    saved(console, page_of(quota), typed(gpu_deserved="5.5", memory_limit="512Gi", cpu_limit="64"))
    quota.refresh_from_db()
    assert (quota.gpu_deserved, quota.memory_limit, quota.cpu_limit) == (5500, 512 * 2**30, 64000)
    page = console.get(page_of(quota)).content.decode()
    assert 'value="5.5"' in page
    assert 'value="512Gi"' in page
    assert 'value="64"' in page
    assert (
        '<td class="field-gpu_deserved_text">5.5</td>'
        in console.get(reverse("admin:tenants_projectquota_changelist")).content.decode()
    )


def test_weights_are_typed_per_resource_and_shown_where_they_differ(console: Client, quota: ProjectQuota) -> None:
    own = {"over_quota_weight": "2.5", "cpu_weight": "1", "memory_weight": ""}
    saved(console, page_of(quota), typed(**own))
    quota.refresh_from_db()
    assert (quota.over_quota_weight, quota.cpu_weight, quota.memory_weight) == (2.5, 1, None)
    assert "2.5 (CPU 1)" in console.get(reverse("admin:tenants_projectquota_changelist")).content.decode()
    refused = console.post(page_of(quota), typed(memory_weight="-1"))
    assert "memory_weight" in errors_of(refused)


def test_an_empty_limit_is_unlimited(console: Client, quota: ProjectQuota) -> None:
    saved(console, page_of(quota), typed(gpu_limit=""))
    quota.refresh_from_db()
    assert quota.gpu_limit is None


def test_the_change_has_an_author_a_reason_and_a_record(console: Client, quota: ProjectQuota, admin: User) -> None:
    saved(console, page_of(quota), typed(gpu_deserved="6", reason="Paper deadline"))
    versions = quota.history.all()
    assert len(versions) == 2
    assert (versions[0].history_user, versions[0].history_change_reason) == (admin, "Paper deadline")
    entry = AuditRecord.objects.get(action="quota.set")
    assert (entry.actor_name, entry.channel) == ("admin", "ui")
    assert entry.detail["reason"] == "Paper deadline"
    history = console.get(reverse("admin:tenants_projectquota_history", args=[quota.pk])).content.decode()
    assert "Paper deadline" in history
    assert "4 GPUs" in history
    assert "6 GPUs" in history


def test_without_a_reason_nothing_changes(console: Client, quota: ProjectQuota) -> None:
    errors = errors_of(console.post(page_of(quota), typed(gpu_deserved="6", reason=" ")))
    assert list(errors) == ["reason"]
    quota.refresh_from_db()
    assert quota.gpu_deserved == 4000
    assert not AuditRecord.objects.filter(action="quota.set").exists()


def test_a_refusal_is_shown_at_its_field_with_its_numbers(
    console: Client, quota: ProjectQuota, h100: NodePool, ledger: Ledger
) -> None:
    ledger.holds(quota.project, h100, Usage(Resources.of(gpu=3), Resources.of(gpu=3), Resources.of(gpu=3)))
    errors = errors_of(console.post(page_of(quota), typed(gpu_deserved="2")))
    assert list(errors) == ["gpu_deserved"]
    assert "3 GPUs" in errors["gpu_deserved"][0]
    assert "2 GPUs" in errors["gpu_deserved"][0]
    entry = AuditRecord.objects.get(result="Denied")
    assert (entry.action, entry.actor_name, entry.channel) == ("projectquota.change", "admin", "admin")
    assert entry.detail["code"] == "below_non_preemptible_use"


def test_a_limit_below_deserved_is_shown_at_the_limit(console: Client, quota: ProjectQuota) -> None:
    errors = errors_of(console.post(page_of(quota), typed(gpu_deserved="6", gpu_limit="5")))
    assert list(errors) == ["gpu_limit"]


def test_the_departments_bound_is_shown_at_deserved(console: Client, quota: ProjectQuota) -> None:
    Department.objects.update(enforce_deserved=True)
    errors = errors_of(console.post(page_of(quota), typed(gpu_deserved="9")))
    assert "9 GPUs" in errors["gpu_deserved"][0]


class TestWhatASaveBringsWithIt:
    """The plan shows it, and nothing is saved before it is applied."""

    def _shown(self, console: Client, quota: ProjectQuota, **changes: str) -> list[str]:
        """The warnings of the plan that a save opens."""
        assert console.post(page_of(quota), typed(**changes)).status_code == 302
        warnings: list[str] = Plan.objects.latest("created_at").effect["warnings"]
        return warnings

    @pytest.fixture
    def train(self, quota: ProjectQuota, ledger: Ledger, h100: NodePool) -> None:
        """Two preemptible runs of llm-team hold 4 GPUs of h100."""
        held = [
            EvictableWork("llm-team/young, low 40", Resources.of(gpu=2)),
            EvictableWork("llm-team/old, low 40", Resources.of(gpu=2)),
        ]
        ledger.holds(quota.project, h100, Usage(Resources.of(gpu=4), Resources.of(gpu=0), Resources.of(gpu=4)))
        ledger.work[quota.project.pk, h100.name] = held

    def test_nothing_is_saved_before_the_plan_is_applied(self, console: Client, quota: ProjectQuota) -> None:
        said = self._shown(console, quota, gpu_deserved="9")
        assert "the projects of research deserve 9 GPUs in total" in said[0]
        quota.refresh_from_db()
        assert quota.gpu_deserved == 4000
        assert not AuditRecord.objects.filter(action="quota.set").exists()
        assert not LogEntry.objects.exists()

    def test_who_becomes_reclaimable_is_named(self, console: Client, quota: ProjectQuota, train: None) -> None:
        assert self._shown(console, quota, gpu_deserved="3")[0] == (
            "llm-team: In h100 the use of 4 GPUs exceeds the deserved 3 GPUs by 1 GPU. Of that, 1 GPU can be reclaimed "
            "from preemptible workloads. Lowest priority and newest first: llm-team/young, low 40 (2 GPUs)."
        )

    def test_who_was_reclaimable_before_is_not_named_again(
        self, console: Client, quota: ProjectQuota, train: None
    ) -> None:
        ProjectQuota.objects.update(gpu_deserved=3 * GPU)
        said = self._shown(console, quota, gpu_deserved="1")
        assert "llm-team/old" in said[0]
        assert "llm-team/young" not in said[0]

    def test_where_nothing_is_reclaimed_nobody_is_named(
        self, console: Client, quota: ProjectQuota, train: None
    ) -> None:
        Cluster.objects.update(flavour="kube")
        assert self._shown(console, quota, gpu_deserved="3") == []

    def test_a_removal_says_it_on_its_confirmation(self, console: Client, quota: ProjectQuota, train: None) -> None:
        page = console.get(reverse("admin:tenants_projectquota_delete", args=[quota.pk])).content.decode()
        assert "llm-team/young" in page
        assert "llm-team/old" in page
        assert ProjectQuota.objects.filter(pk=quota.pk).exists()


@pytest.mark.parametrize(
    "text",
    ["-1", "1e400", "0.0001", "many", "NaN", "Infinity", "9" * 60, "0x8", "=1+1", "1\x00", "९", "<b>1</b>", "1,5"],
)
def test_bad_amounts_are_form_errors(console: Client, quota: ProjectQuota, text: str) -> None:
    assert list(errors_of(console.post(page_of(quota), typed(gpu_deserved=text)))) == ["gpu_deserved"]


@pytest.mark.parametrize("field", ["over_quota_weight", "rank"])
def test_bad_choices_are_form_errors(console: Client, quota: ProjectQuota, field: str) -> None:
    assert list(errors_of(console.post(page_of(quota), typed(**{field: "99999999999"})))) == [field]


def test_t52_project_and_pool_cannot_be_slipped_in(
    console: Client, quota: ProjectQuota, vision_team: Project, a100: NodePool
) -> None:
    saved(console, page_of(quota), typed(gpu_deserved="5", project=str(vision_team.pk), node_pool=str(a100.pk)))
    quota.refresh_from_db()
    assert (quota.project.name, quota.node_pool.name, quota.gpu_deserved) == ("llm-team", "h100", 5000)


class TestAdding:
    """A quota for a pool that has none yet."""

    def test_it_is_written_through_the_service(self, console: Client, llm_team: Project, a100: NodePool) -> None:
        form = typed(project=str(llm_team.pk), node_pool=str(a100.pk), gpu_deserved="1", gpu_limit="2")
        url = reverse("admin:tenants_projectquota_add")
        saved(console, url, form)
        assert llm_team.quotas.get(node_pool=a100).gpu_deserved == 1000
        assert AuditRecord.objects.filter(action="quota.set").count() == 1

    def test_a_second_one_for_the_same_pool_is_refused(
        self, console: Client, llm_team: Project, h100: NodePool
    ) -> None:
        form = typed(project=str(llm_team.pk), node_pool=str(h100.pk), gpu_deserved="1")
        assert "__all__" in errors_of(console.post(reverse("admin:tenants_projectquota_add"), form))
        assert llm_team.quotas.get().gpu_deserved == 4000

    def test_the_pool_of_another_cluster_is_refused(self, console: Client, llm_team: Project) -> None:
        form = typed(project=str(llm_team.pk), node_pool=str(NodePoolFactory().pk))
        assert list(errors_of(console.post(reverse("admin:tenants_projectquota_add"), form))) == ["node_pool"]

    def test_nothing_at_all_is_a_form_error(self, console: Client, llm_team: Project) -> None:
        errors = errors_of(console.post(reverse("admin:tenants_projectquota_add"), {}))
        assert {"project", "node_pool", "gpu_deserved", "reason"} <= set(errors)


class TestDeleting:
    """Deleting a quota leaves nothing deserved, if nothing needs it."""

    def test_what_is_held_keeps_the_quota(
        self, console: Client, quota: ProjectQuota, h100: NodePool, ledger: Ledger
    ) -> None:
        ledger.holds(quota.project, h100, Usage(Resources.of(gpu=1), Resources.of(gpu=1), Resources.of(gpu=1)))
        url = reverse("admin:tenants_projectquota_delete", args=[quota.pk])
        answer = console.post(url, {"post": "yes"}, follow=True)
        assert "use 1 GPU" in answer.content.decode()
        assert ProjectQuota.objects.filter(pk=quota.pk).exists()
        assert AuditRecord.objects.filter(result="Denied").count() == 1

    def test_several_go_together_or_not_at_all(
        self, console: Client, quota: ProjectQuota, vision_team: Project, h100: NodePool, ledger: Ledger
    ) -> None:
        ledger.holds(vision_team, h100, Usage(Resources.of(gpu=1), Resources.of(gpu=1), Resources.of(gpu=1)))
        form = {
            "action": "delete_selected",
            "_selected_action": [row.pk for row in ProjectQuota.objects.all()],
            "post": "yes",
        }
        answer = console.post(reverse("admin:tenants_projectquota_changelist"), form, follow=True)
        assert "use 1 GPU" in answer.content.decode()
        assert ProjectQuota.objects.count() == 2

    def test_a_free_one_goes_with_its_history_kept(self, console: Client, quota: ProjectQuota, admin: User) -> None:
        console.post(reverse("admin:tenants_projectquota_delete", args=[quota.pk]), {"post": "yes"})
        assert not ProjectQuota.objects.exists()
        assert ProjectQuota.history.filter(history_type="-").get().history_user == admin


def test_a_lost_race_is_a_message_not_a_failure(
    console: Client, quota: ProjectQuota, h100: NodePool, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the dry run and the save, non-preemptible work starts."""
    calls = iter([Usage(), Usage(Resources.of(gpu=4), Resources.of(gpu=4), Resources.of(gpu=4))])
    monkeypatch.setattr(quotas, "usage_of", lambda _project, _pool: next(calls))
    answer = console.post(page_of(quota), typed(gpu_deserved="2"), follow=True)
    assert answer.status_code == 200
    assert "Non-preemptible workloads use 4 GPUs, more than 2 GPUs." in answer.content.decode()
    quota.refresh_from_db()
    assert quota.gpu_deserved == 4000


def test_an_older_version_comes_back_through_the_same_checks(
    console: Client, quota: ProjectQuota, h100: NodePool, ledger: Ledger
) -> None:
    saved(console, page_of(quota), typed(gpu_deserved="6"))
    first = quota.history.earliest()
    url = reverse("admin:tenants_projectquota_simple_history", args=[quota.pk, first.history_id])
    assert console.get(url).status_code == 200
    saved(console, url, typed(gpu_deserved="4", reason="Back"))
    quota.refresh_from_db()
    assert (quota.gpu_deserved, quota.history.latest().history_change_reason) == (4000, "Back")
    ledger.holds(quota.project, h100, Usage(Resources.of(gpu=4), Resources.of(gpu=4), Resources.of(gpu=4)))
    assert "gpu_deserved" in errors_of(console.post(url, typed(gpu_deserved="1", reason="Back")))


class TestCaps:
    """GPU caps of priorities."""

    def test_a_cap_is_set_and_lifted(self, console: Client, llm_team: Project, ledger: Ledger) -> None:
        form = {"project": str(llm_team.pk), "priority": "high", "gpu_limit": "8", "reason": "Fairness"}
        answer = console.post(reverse("admin:tenants_prioritycap_add"), form)
        assert not PriorityCap.objects.exists()
        applied(console, answer)
        cap = PriorityCap.objects.get()
        assert (cap.gpu_limit, cap.history.get().history_change_reason) == (8 * GPU, "Fairness")
        console.post(reverse("admin:tenants_prioritycap_delete", args=[cap.pk]), {"post": "yes"})
        assert not PriorityCap.objects.exists()

    def test_a_name_outside_the_dictionary_is_shown_at_its_field(
        self, console: Client, llm_team: Project, ledger: Ledger
    ) -> None:
        form = {"project": str(llm_team.pk), "priority": "urgent", "gpu_limit": "8", "reason": "Fairness"}
        errors = errors_of(console.post(reverse("admin:tenants_prioritycap_add"), form))
        assert "very-high" in errors["priority"][0]


class TestWhoMay:
    """The console is for platform admins, whatever Django's own flags say."""

    def test_staff_without_a_role_sees_nothing(self, client_of: Callable[[User], Client], quota: ProjectQuota) -> None:
        client = client_of(UserFactory(is_staff=True))
        assert client.get(reverse("admin:tenants_projectquota_changelist")).status_code == 403
        assert client.post(page_of(quota), typed(gpu_deserved="9")).status_code == 403
        assert client.get(reverse("admin:tenants_projectquota_export")).status_code == 403
        assert client.get(reverse("admin:tenants_projectquota_import")).status_code == 403
        assert "Project quotas" not in client.get(reverse("admin:index")).content.decode()

    def test_a_platform_admin_by_role_does_everything(
        self, client_of: Callable[[User], Client], quota: ProjectQuota
    ) -> None:
        boss = MembershipFactory(role="platform-admin", project=None, user=UserFactory(is_staff=True)).user
        saved(client_of(boss), page_of(quota), typed(gpu_deserved="5"))
        quota.refresh_from_db()
        assert quota.gpu_deserved == 5000

    def test_outsiders_are_sent_to_the_sign_in(self, client: Client, quota: ProjectQuota) -> None:
        assert client.get(page_of(quota)).status_code == 302


@pytest.mark.parametrize("key", ["0", "x", "%2e%2e", "10" * 30, "1;2"])
def test_t68_ids_that_are_none_are_no_failure(console: Client, quota: ProjectQuota, key: str) -> None:
    answer = console.get(f"/admin/tenants/projectquota/{key}/change/")
    assert answer.status_code in {302, 404}


def test_the_system_is_no_author(llm_team: Project) -> None:
    quotas.reset_quota(quota=llm_team.quotas.get(), actor=SYSTEM)
    assert ProjectQuota.history.latest().history_user is None
