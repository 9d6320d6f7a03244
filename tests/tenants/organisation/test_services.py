"""Departments and projects: their names, their namespaces, and when they may go."""

import pytest

from clusters.inventory.models import Cluster
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, Forbidden, NotFound, ValidationFailed
from portal.kit.security.actors import SYSTEM
from scheduling.model.resources import Resources
from tenants.access.models import Role, User
from tenants.organisation import services as organisation_services
from tenants.organisation.models import Department, Project
from tenants.quotas.services.quotas import set_deserved_enforcement
from tenants.usage.selectors import Usage
from tests.factories.cast import Ledger, acting
from tests.factories.tenants import MembershipFactory, ProjectFactory
from tests.factories.workloads import WorkloadFactory


def test_a_project_lives_in_the_namespace_named_after_it(research: Department) -> None:
    project = organisation_services.create_project(department=research, name="speech", actor=SYSTEM)
    assert project.namespace == "runai-speech"
    assert project.cluster == research.cluster
    research.cluster.refresh_from_db()
    assert research.cluster.generation == 2
    assert AuditRecord.objects.get(action="project.create").detail["namespace"] == "runai-speech"


def test_a_namespace_may_be_chosen(research: Department) -> None:
    project = organisation_services.create_project(
        department=research, name="speech", namespace="ml-speech", actor=SYSTEM
    )
    assert project.namespace == "ml-speech"


@pytest.mark.parametrize("namespace", ["default", "kube-system", "kube-anything", "openshift-gpu", "runai"])
def test_namespaces_of_the_cluster_are_refused(research: Department, namespace: str) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        organisation_services.create_project(department=research, name="speech", namespace=namespace, actor=SYSTEM)
    assert (refusal.value.code, refusal.value.problems[0].pointer) == ("reserved_namespace", "/namespace")
    assert not Project.objects.filter(name="speech").exists()


def test_a_name_can_reach_a_reserved_namespace_no_more_than_a_namespace_can(research: Department) -> None:
    with pytest.raises(ValidationFailed):
        organisation_services.create_project(department=research, name="backend", actor=SYSTEM)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("x" * 51, id="too long"),
        pytest.param("Speech", id="upper case"),
        pytest.param("-x", id="dash first"),
        pytest.param("speech\n", id="line break"),
        pytest.param("../etc", id="path"),
        pytest.param("<b>x</b>", id="markup"),
        pytest.param("a_b", id="underscore"),
        pytest.param("nul\x00l", id="NUL"),
        pytest.param("sрeech", id="look-alike letter"),
    ],
)
def test_t5_names_that_are_no_dns_label_are_refused(research: Department, name: str) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        organisation_services.create_project(department=research, name=name, actor=SYSTEM)
    assert "/name" in [problem.pointer for problem in refusal.value.problems]


def test_a_taken_name_is_a_conflict(llm_team: Project) -> None:
    with pytest.raises(Conflict) as refusal:
        organisation_services.create_project(department=llm_team.department, name="llm-team", actor=SYSTEM)
    assert "/name" in [problem.pointer for problem in refusal.value.problems]


def test_a_namespace_belongs_to_one_project_of_a_cluster(llm_team: Project) -> None:
    with pytest.raises(Conflict, match="namespace"):
        organisation_services.create_project(
            department=llm_team.department, name="other", namespace=llm_team.namespace, actor=SYSTEM
        )


def test_default_node_pools_must_exist(research: Department) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        organisation_services.create_project(
            department=research, name="speech", default_node_pools=["h100", "tpu"], actor=SYSTEM
        )
    assert refusal.value.problems[0].pointer == "/defaultNodePools/1"
    assert refusal.value.problems[0].allowed == ("h100", "a100")


def test_a_change_is_kept_with_its_author_and_reason(llm_team: Project, admin: User) -> None:
    organisation_services.update_project(
        project=llm_team, description="Language models", default_node_pools=["a100"], actor=acting(admin), reason="Plan"
    )
    version = llm_team.history.latest()
    assert (version.description, version.history_user, version.history_change_reason) == (
        "Language models",
        admin,
        "Plan",
    )


def test_control_characters_in_a_description_are_refused(llm_team: Project) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        organisation_services.update_project(
            project=llm_team, description="a\x00b", default_node_pools=[], actor=SYSTEM
        )
    assert refusal.value.problems[0].pointer == "/description"


def test_a_department_is_bound_with_author_and_reason(research: Department, admin: User) -> None:
    set_deserved_enforcement(department=research, enforced=True, actor=acting(admin), reason="Audit")
    research.refresh_from_db()
    assert research.enforce_deserved
    assert research.history.latest().history_change_reason == "Audit"
    entry = AuditRecord.objects.get(action="department.enforce_deserved")
    assert entry.detail == {"before": False, "after": True, "reason": "Audit"}
    set_deserved_enforcement(department=research, enforced=True, actor=acting(admin))
    assert AuditRecord.objects.count() == 1


def test_a_description_that_stays_leaves_no_record(research: Department, llm_team: Project) -> None:
    organisation_services.update_department(department=research, description="", actor=SYSTEM)
    organisation_services.update_project(project=llm_team, description="", default_node_pools=[], actor=SYSTEM)
    assert not AuditRecord.objects.exists()


class TestRemoval:
    """What is in use stays, and the refusal says how much of it is."""

    def test_an_empty_project_goes_with_its_quotas(self, llm_team: Project) -> None:
        organisation_services.delete_project(project=llm_team, actor=SYSTEM, reason="Over")
        assert not Project.objects.exists()
        assert Project.history.latest().history_change_reason == "Over"
        assert AuditRecord.objects.filter(action="project.delete").exists()

    def test_live_workloads_keep_a_project(self, llm_team: Project, ledger: Ledger) -> None:
        ledger.holds(llm_team, llm_team.cluster.node_pools.get(name="h100"), Usage(Resources.of(gpu=1)))
        ledger.live[llm_team.pk] = 3
        with pytest.raises(Conflict) as refusal:
            organisation_services.delete_project(project=llm_team, actor=SYSTEM)
        assert refusal.value.code == "project_in_use"
        assert refusal.value.problems[0].numbers == {"workloads": "3"}
        assert Project.objects.exists()

    def test_the_history_of_finished_workloads_keeps_a_project(self, llm_team: Project, ledger: Ledger) -> None:
        WorkloadFactory.create_batch(2, project=llm_team, phase="Completed")
        with pytest.raises(Conflict) as refusal:
            organisation_services.delete_project(project=llm_team, actor=SYSTEM)
        assert refusal.value.code == "project_has_history"
        assert refusal.value.problems[0].numbers == {"workloads": "2"}

    def test_projects_keep_a_department(self, research: Department) -> None:
        ProjectFactory.create_batch(2, department=research)
        with pytest.raises(Conflict) as refusal:
            organisation_services.delete_department(department=research, actor=SYSTEM)
        assert refusal.value.problems[0].numbers == {"projects": "2"}

    def test_an_empty_department_goes(self, research: Department) -> None:
        organisation_services.delete_department(department=research, actor=SYSTEM)
        assert not Department.objects.exists()


class TestWhoMay:
    """Departments are the platform's, projects their department's."""

    def test_department_admins_make_projects_in_theirs_only(self, research: Department, perception: Department) -> None:
        boss = acting(MembershipFactory(role=Role.DEPARTMENT_ADMIN, project=None, department=research).user)
        organisation_services.create_project(department=research, name="speech", actor=boss)
        with pytest.raises(NotFound):
            organisation_services.create_project(department=perception, name="robots", actor=boss)

    def test_department_admins_make_no_departments(self, cluster: Cluster, research: Department) -> None:
        boss = acting(MembershipFactory(role=Role.DEPARTMENT_ADMIN, project=None, department=research).user)
        with pytest.raises(Forbidden):
            organisation_services.create_department(cluster=cluster, name="mine", actor=boss)

    def test_department_admins_do_not_loosen_the_bounds_set_for_them(self, research: Department) -> None:
        Department.objects.update(enforce_deserved=True)
        boss = acting(MembershipFactory(role=Role.DEPARTMENT_ADMIN, project=None, department=research).user)
        with pytest.raises(Forbidden):
            set_deserved_enforcement(department=research, enforced=False, actor=boss)

    def test_owners_do_not_remove_their_project(self, llm_team: Project, alice: User) -> None:
        with pytest.raises(Forbidden):
            organisation_services.delete_project(project=llm_team, actor=acting(alice))
