"""Setting quotas: what is refused, with which numbers, and what follows an accepted change."""

import pytest
from django.utils import timezone

from clusters.inventory.models import NodePool
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, Forbidden, NotFound, ValidationFailed
from portal.kit.security.actors import SYSTEM
from scheduling.model.resources import Limit, Resources
from tenants.access.models import User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota, Rank
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services.quotas import (
    reset_quota,
    set_department_quota,
    set_deserved_enforcement,
    set_priority_cap,
    set_project_quota,
)
from tenants.usage.selectors import Usage
from tests.factories.cast import Ledger, acting
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, ProjectFactory, ProjectQuotaFactory


def gpus(deserved: int, limit: int | None = None, **others: object) -> QuotaValues:
    """A quota in whole GPUs."""
    return QuotaValues(Limit(gpu=deserved * GPU), Limit(gpu=None if limit is None else limit * GPU), **others)


def codes(warnings: tuple[object, ...]) -> list[str]:
    return [warning.code for warning in warnings]


def test_an_accepted_change_is_stored_signed_recorded_and_due(llm_team: Project, h100: NodePool, admin: User) -> None:
    before = timezone.now()
    set_project_quota(
        project=llm_team, node_pool=h100, values=gpus(6, 10, rank="high"), actor=acting(admin), reason="New grant"
    )
    quota = llm_team.quotas.get(node_pool=h100)
    assert (quota.gpu_deserved, quota.gpu_limit, quota.rank) == (6000, 10000, Rank.HIGH)
    change = quota.history.latest()
    assert (change.history_user, change.history_change_reason) == (admin, "New grant")
    entry = AuditRecord.objects.get(action="quota.set")
    assert entry.actor_name == "admin"
    assert entry.project_id == str(llm_team.pk)
    assert entry.detail["before"] == {"gpu_deserved": "4 GPUs", "gpu_limit": "12 GPUs", "rank": "medium-low"}
    assert entry.detail["after"] == {"gpu_deserved": "6 GPUs", "gpu_limit": "10 GPUs", "rank": "high"}
    llm_team.refresh_from_db()
    llm_team.cluster.refresh_from_db()
    assert llm_team.generation == 2
    assert llm_team.cluster.generation == 2
    assert llm_team.cluster.sync_due_at >= before


def test_the_same_values_again_change_nothing(llm_team: Project, h100: NodePool) -> None:
    set_project_quota(project=llm_team, node_pool=h100, values=gpus(4, 12), actor=SYSTEM)
    llm_team.refresh_from_db()
    assert llm_team.generation == 1
    assert not AuditRecord.objects.exists()


@pytest.mark.parametrize(
    ("values", "pointer", "code"),
    [
        pytest.param(gpus(-1), "/gpu/deserved", "out_of_range", id="negative"),
        pytest.param(QuotaValues(Limit(gpu=2**63)), "/gpu/deserved", "out_of_range", id="more than a row holds"),
        pytest.param(QuotaValues(Limit()), "/gpu/deserved", "required", id="no GPU figure"),
        pytest.param(gpus(4, 3), "/gpu/limit", "limit_below_deserved", id="limit below deserved"),
        pytest.param(
            QuotaValues(Limit(0, cpu=2000), Limit(cpu=1000)),
            "/cpu/limit",
            "limit_below_deserved",
            id="the same for CPU",
        ),
        pytest.param(gpus(1, over_quota_weight=-1), "/gpu/overQuotaWeight", "out_of_range", id="negative weight"),
        pytest.param(gpus(1, cpu_weight=0.0001), "/cpu/overQuotaWeight", "out_of_range", id="too fine a weight"),
        pytest.param(gpus(1, memory_weight=float("nan")), "/memory/overQuotaWeight", "out_of_range", id="no weight"),
        pytest.param(gpus(1, rank="urgent"), "/rank", "unknown_rank", id="unknown rank"),
    ],
)
def test_malformed_values_are_refused_at_their_field(
    llm_team: Project, h100: NodePool, values: QuotaValues, pointer: str, code: str
) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        set_project_quota(project=llm_team, node_pool=h100, values=values, actor=SYSTEM)
    assert (pointer, code) in [(problem.pointer, problem.code) for problem in refusal.value.problems]


@pytest.mark.parametrize(
    ("bound", "accepted"),
    [
        (Limit(gpu=-1), "0 to 9223372036854775 GPUs"),
        (Limit(gpu=0, cpu=-1), "0 to 9223372036854775 cores"),
        (Limit(gpu=0, memory=-1), "0 to 8191Pi"),
    ],
)
def test_an_amount_out_of_range_is_refused_with_the_range(
    llm_team: Project, h100: NodePool, bound: Limit, accepted: str
) -> None:
    with pytest.raises(ValidationFailed, match=f"^Amount out of range: {accepted}\\.$"):
        set_project_quota(project=llm_team, node_pool=h100, values=QuotaValues(bound), actor=SYSTEM)


@pytest.mark.parametrize(
    ("flavour", "weight", "codes"),
    [
        pytest.param("kai", 2.5, [], id="one per resource"),
        pytest.param("kueue", 2.5, ["one_weight"], id="one per queue"),
        pytest.param("volcano", 2.5, ["one_weight", "whole_weight"], id="one whole number per queue"),
        pytest.param("volcano", 2, ["one_weight"], id="a whole number"),
        pytest.param("kube", 2.5, ["one_weight"], id="none"),
    ],
)
def test_weights_that_a_scheduler_does_not_have_are_warned_of(
    llm_team: Project, h100: NodePool, flavour: str, weight: float, codes: list[str]
) -> None:
    h100.cluster.flavour = flavour
    values = gpus(1, over_quota_weight=weight, memory_weight=7)
    change = set_project_quota(project=llm_team, node_pool=h100, values=values, actor=SYSTEM)
    assert [(each.code, each.pointer) for each in change.warnings] == [
        (code, "/memory/overQuotaWeight" if code == "one_weight" else "/gpu/overQuotaWeight") for code in codes
    ]
    row = change.quota
    assert (row.over_quota_weight, row.cpu_weight, row.memory_weight) == (weight, None, 7)


def test_a_limit_below_deserved_names_both(llm_team: Project, h100: NodePool) -> None:
    with pytest.raises(ValidationFailed, match=r"limit of 3 GPUs is lower than the deserved quota of 4 GPUs"):
        set_project_quota(project=llm_team, node_pool=h100, values=gpus(4, 3), actor=SYSTEM)


def test_the_pool_of_another_cluster_is_refused(llm_team: Project) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        set_project_quota(project=llm_team, node_pool=NodePoolFactory(), values=gpus(1), actor=SYSTEM)
    assert refusal.value.problems[0].pointer == "/nodePool"


class TestNonPreemptibleWork:
    """It is never evicted, so its quota may not be cut away below it."""

    def test_deserved_may_not_fall_below_what_it_holds(self, llm_team: Project, h100: NodePool, ledger: Ledger) -> None:
        ledger.holds(llm_team, h100, Usage(Resources.of(gpu=4), Resources.of(gpu=3), Resources.of(gpu=4)))
        with pytest.raises(Conflict) as refusal:
            set_project_quota(project=llm_team, node_pool=h100, values=gpus(2), actor=SYSTEM)
        assert refusal.value.code == "below_non_preemptible_use"
        assert refusal.value.problems[0].pointer == "/gpu/deserved"
        assert refusal.value.problems[0].numbers == {"requested": "2 GPUs", "held": "3 GPUs"}
        assert llm_team.quotas.get().gpu_deserved == 4 * GPU

    def test_exactly_what_it_holds_is_enough(self, llm_team: Project, h100: NodePool, ledger: Ledger) -> None:
        ledger.holds(llm_team, h100, Usage(Resources.of(gpu=4), Resources.of(gpu=3), Resources.of(gpu=4)))
        set_project_quota(project=llm_team, node_pool=h100, values=gpus(3), actor=SYSTEM)
        assert llm_team.quotas.get().gpu_deserved == 3 * GPU

    def test_what_another_pool_holds_does_not_count(
        self, llm_team: Project, h100: NodePool, a100: NodePool, ledger: Ledger
    ) -> None:
        ledger.holds(llm_team, a100, Usage(Resources.of(gpu=4), Resources.of(gpu=4), Resources.of(gpu=4)))
        set_project_quota(project=llm_team, node_pool=h100, values=gpus(0), actor=SYSTEM)
        assert llm_team.quotas.get().gpu_deserved == 0

    def test_a_department_keeps_what_its_projects_hold_together(
        self, research: Department, llm_team: Project, h100: NodePool, ledger: Ledger
    ) -> None:
        other = ProjectFactory(department=research)
        for project in (llm_team, other):
            ledger.holds(project, h100, Usage(Resources.of(gpu=3), Resources.of(gpu=3), Resources.of(gpu=3)))
        with pytest.raises(Conflict) as refusal:
            set_department_quota(department=research, node_pool=h100, values=gpus(5), actor=SYSTEM)
        assert refusal.value.problems[0].numbers == {"requested": "5 GPUs", "held": "6 GPUs"}

    def test_a_quota_that_holds_it_cannot_be_reset(self, llm_team: Project, h100: NodePool, ledger: Ledger) -> None:
        ledger.holds(llm_team, h100, Usage(Resources.of(gpu=1), Resources.of(gpu=1), Resources.of(gpu=1)))
        with pytest.raises(Conflict):
            reset_quota(quota=llm_team.quotas.get(), actor=SYSTEM)
        assert llm_team.quotas.exists()


class TestSums:
    """Projects against their department, everything against the GPUs that are there."""

    def test_more_than_the_department_deserves_is_a_warning(self, llm_team: Project, h100: NodePool) -> None:
        change = set_project_quota(project=llm_team, node_pool=h100, values=gpus(10), actor=SYSTEM)
        assert codes(change.warnings) == ["sum_over_department"]
        assert change.warnings[0].numbers == {"sum": "10 GPUs", "own": "8 GPUs"}

    def test_siblings_count(self, llm_team: Project, h100: NodePool) -> None:
        ProjectQuotaFactory(project__department=llm_team.department, node_pool=h100, gpu_deserved=5 * GPU)
        change = set_project_quota(project=llm_team, node_pool=h100, values=gpus(4, 16), actor=SYSTEM)
        assert change.warnings[0].numbers == {"sum": "9 GPUs", "own": "8 GPUs"}

    def test_where_enforced_it_is_refused(self, research: Department, llm_team: Project, h100: NodePool) -> None:
        Department.objects.update(enforce_deserved=True)
        with pytest.raises(ValidationFailed) as refusal:
            set_project_quota(project=llm_team, node_pool=h100, values=gpus(9), actor=SYSTEM)
        assert refusal.value.problems[0].numbers == {"sum": "9 GPUs", "own": "8 GPUs"}
        set_project_quota(project=llm_team, node_pool=h100, values=gpus(8), actor=SYSTEM)

    def test_where_enforced_a_department_cannot_shrink_below_its_projects(
        self, research: Department, llm_team: Project, h100: NodePool
    ) -> None:
        Department.objects.update(enforce_deserved=True)
        with pytest.raises(ValidationFailed) as refusal:
            set_department_quota(department=research, node_pool=h100, values=gpus(3), actor=SYSTEM)
        assert refusal.value.problems[0].numbers == {"sum": "4 GPUs", "own": "3 GPUs"}

    def test_enforcing_starts_only_where_it_already_holds(
        self, research: Department, llm_team: Project, h100: NodePool
    ) -> None:
        set_project_quota(project=llm_team, node_pool=h100, values=gpus(10), actor=SYSTEM)
        with pytest.raises(Conflict) as refusal:
            set_deserved_enforcement(department=research, actor=SYSTEM, enforced=True)
        assert refusal.value.code == "sum_over_department"
        research.refresh_from_db()
        assert not research.enforce_deserved

    def test_promises_over_the_physical_gpus_are_a_warning_only(
        self, llm_team: Project, vision_team: Project, h100: NodePool
    ) -> None:
        Department.objects.update(enforce_deserved=False)
        change = set_project_quota(project=llm_team, node_pool=h100, values=gpus(13), actor=SYSTEM)
        assert codes(change.warnings) == ["sum_over_department", "over_physical"]
        assert change.warnings[1].numbers == {"promised": "17 GPUs", "physical": "16 GPUs"}

    def test_departments_are_summed_against_the_physical_gpus_too(
        self, research: Department, perception: Department, h100: NodePool
    ) -> None:
        change = set_department_quota(department=research, node_pool=h100, values=gpus(9), actor=SYSTEM)
        assert change.warnings[0].numbers == {"promised": "17 GPUs", "physical": "16 GPUs"}

    def test_a_department_limit_below_the_project_is_a_warning(
        self, research: Department, llm_team: Project, h100: NodePool
    ) -> None:
        DepartmentQuota.objects.update(gpu_limit=8 * GPU)
        change = set_project_quota(project=llm_team, node_pool=h100, values=gpus(9), actor=SYSTEM)
        assert "over_department_limit" in codes(change.warnings)

    def test_a_limit_below_current_use_evicts_nobody_and_says_so(
        self, llm_team: Project, h100: NodePool, ledger: Ledger
    ) -> None:
        ledger.holds(llm_team, h100, Usage(Resources.of(gpu=10), Resources.of(gpu=2), Resources.of(gpu=10)))
        change = set_project_quota(project=llm_team, node_pool=h100, values=gpus(4, 6), actor=SYSTEM)
        assert codes(change.warnings) == ["limit_below_use"]
        assert change.warnings[0].numbers == {"used": "10 GPUs", "limit": "6 GPUs"}


class TestWhoMay:
    """Quotas are an admin's business; to strangers the project does not exist."""

    def test_an_owner_sees_the_project_but_not_this_verb(self, llm_team: Project, h100: NodePool, alice: User) -> None:
        with pytest.raises(Forbidden):
            set_project_quota(project=llm_team, node_pool=h100, values=gpus(5), actor=acting(alice))

    def test_to_a_stranger_the_project_does_not_exist(self, llm_team: Project, h100: NodePool, charlie: User) -> None:
        with pytest.raises(NotFound):
            set_project_quota(project=llm_team, node_pool=h100, values=gpus(5), actor=acting(charlie))


def test_control_characters_in_a_reason_are_refused(llm_team: Project, h100: NodePool) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        set_project_quota(project=llm_team, node_pool=h100, values=gpus(5), actor=SYSTEM, reason="be\x00cause")
    assert refusal.value.problems[0].pointer == "/reason"


def test_resetting_leaves_nothing_deserved_and_no_limit(llm_team: Project) -> None:
    reset_quota(quota=llm_team.quotas.get(), actor=SYSTEM, reason="Project is over")
    assert not llm_team.quotas.exists()
    assert ProjectQuota.history.latest().history_change_reason == "Project is over"


class TestPriorityCaps:
    """At most so many GPUs of one priority in a project."""

    def test_a_cap_is_set_changed_and_lifted(self, llm_team: Project, ledger: Ledger) -> None:
        for limit in (8 * GPU, 4 * GPU):
            cap = set_priority_cap(project=llm_team, priority="high", gpu_limit=limit, actor=SYSTEM)
            assert cap is not None
            assert cap.gpu_limit == limit
        assert set_priority_cap(project=llm_team, priority="high", gpu_limit=None, actor=SYSTEM) is None
        assert not llm_team.priority_caps.exists()
        details = AuditRecord.objects.filter(action="cap.set").order_by("pk").values_list("detail", flat=True)
        changes = [(each["before"], each["after"]) for each in details]
        assert changes == [(None, "8 GPUs"), ("8 GPUs", "4 GPUs"), ("4 GPUs", None)]

    def test_a_name_outside_the_dictionary_is_refused_with_the_names_in_it(
        self, llm_team: Project, ledger: Ledger
    ) -> None:
        with pytest.raises(ValidationFailed) as refusal:
            set_priority_cap(project=llm_team, priority="urgent", gpu_limit=1, actor=SYSTEM)
        assert refusal.value.problems[0].allowed == ("high", "low", "very-high")
