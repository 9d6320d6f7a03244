"""Who may be told of what: groupings, filters, rights, and the bounds of a report."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.watch.models import Sample
from clusters.watch.selectors import ALL, SampleOwner
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, Forbidden, NotFound, ValidationFailed
from portal.kit.security.actors import SYSTEM, Actor, CredentialLimits
from tenants.access.models import Membership, Role, User
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory, ProjectFactory
from tests.factories.workloads import ReportFactory
from workloads.reports import services as reports_services
from workloads.reports.models import Report
from workloads.reports.rules import file_of
from workloads.reports.selectors import lines_of, places_of, reports_of, stretch_of

HOUR = timedelta(hours=1)


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def estate(llm_team: Project, vision_team: Project) -> Project:
    """Two projects of two departments on one cluster."""
    return llm_team


def ask(actor: Actor, now: datetime, **requested: Any) -> Report:
    period = {"start": now - HOUR, "end": now}
    return reports_services.create_report(**{"name": "use", "actor": actor, **period, **requested})


def told(actor: Actor, group_by: str = "", *filter_by: str) -> list[str]:
    """Names of the places, smallest first: project, department, cluster and pools."""
    found = places_of(group_by=group_by, filter_by=filter_by, actor=actor)
    return ["/".join(filter(None, (each.project, each.department, each.pool, *each.pools))) for each in found]


@pytest.mark.parametrize(
    ("group", "filters", "places"),
    [
        pytest.param("Project", [], ["vision-team/perception", "llm-team/research"], id="projects"),
        pytest.param("Department", [], ["perception", "research"], id="departments"),
        pytest.param("Nodepool", [], ["a100", "h100"], id="node pools"),
        pytest.param("Cluster", [], [""], id="clusters"),
        pytest.param("", [], [""], id="no group: clusters"),
        pytest.param("Project", ["departmentName==research"], ["llm-team/research"], id="projects of a department"),
        pytest.param("Cluster", ["projectName==llm-team"], ["llm-team/research"], id="a project"),
        pytest.param("Nodepool", ["projectName==llm-team"], ["llm-team/research/a100/h100"], id="a project by pool"),
        pytest.param("Nodepool", ["departmentName==research"], ["research/a100/h100"], id="a department by pool"),
        pytest.param("Project", ["projectName==llm-team", "departmentName==perception"], [], id="both must hold"),
    ],
)
def test_groupings_and_filters(estate: Project, group: str, filters: list[str], places: list[str]) -> None:
    assert told(SYSTEM, group, *filters) == places
    assert told(SYSTEM, group, *filters, f"clusterId=={estate.cluster_id}") == places
    assert told(SYSTEM, group, *filters, "clusterId==0a8f0a0e-1111-4222-8333-444455556666") == []


def test_one_is_told_of_what_one_may_see_only(estate: Project, as_bob: Actor, as_charlie: Actor) -> None:
    assert told(as_bob, "Project") == ["llm-team/research"]
    assert told(as_charlie, "Project") == ["vision-team/perception"]
    assert told(as_bob, "Department") == []
    assert told(as_bob, "Nodepool", "projectName==vision-team") == []
    assert told(as_bob, "Nodepool") == ["a100", "h100"]


def test_what_is_foreign_is_refused_as_what_is_absent(estate: Project, as_bob: Actor, now: datetime) -> None:
    refusals = []
    for name in ("vision-team", "no-such-team"):
        with pytest.raises(ValidationFailed) as refused:
            ask(as_bob, now, filter_by=[f"projectName=={name}"])
        refusals.append((refused.value.message, refused.value.problems[0].pointer))
    assert refusals[0] == refusals[1]
    assert refusals[0][1] == "/filterBy"
    assert not Report.objects.exists()


def test_it_is_its_askers_own(estate: Project, as_bob: Actor, as_alice: Actor, as_admin: Actor, now: datetime) -> None:
    row = ask(as_bob, now)
    assert list(reports_of(as_bob)) == [row]
    for other in (as_alice, as_admin):
        assert not reports_of(other).exists()
        with pytest.raises(NotFound):
            reports_services.delete_report(key=row.pk, actor=other)
    reports_services.delete_report(key=row.pk, actor=as_bob)
    assert list(AuditRecord.objects.filter(entity_type="report").order_by("pk").values_list("action", flat=True)) == [
        "report.create",
        "report.delete",
    ]


def test_a_bound_key_asks_within_its_place_and_sees_what_such_a_key_asked_for(
    estate: Project, admin: User, vision_team: Project, now: datetime
) -> None:
    person = acting(admin)
    bound = Actor(
        person.kind, person.id, person.name, person.channel, limits=CredentialLimits(key="k", project_id=estate.pk)
    )
    assert told(bound, "Project") == ["llm-team/research"]
    wide, narrow = ask(person, now, group_by="Project"), ask(bound, now, group_by="Project")
    assert list(reports_of(bound)) == [narrow]
    assert set(reports_of(person)) == {wide, narrow}
    reports_services.sweep()
    assert "vision-team" not in reports_services.file_of_report(key=narrow.pk, actor=bound)[1]
    assert "vision-team" in reports_services.file_of_report(key=wide.pk, actor=person)[1]


def test_a_file_closes_when_its_places_do(estate: Project, bob: User, as_bob: Actor, now: datetime) -> None:
    row = ask(as_bob, now, group_by="Project")
    reports_services.sweep()
    assert "llm-team" in reports_services.file_of_report(key=row.pk, actor=as_bob)[1]
    Membership.objects.filter(user=bob).delete()
    with pytest.raises(Forbidden) as denied:
        reports_services.file_of_report(key=row.pk, actor=as_bob)
    assert denied.value.code == "not_yours_any_more"


def test_what_was_deleted_since_stays_in_the_file(estate: Project, now: datetime) -> None:
    gone = ProjectFactory(name="gone", department=estate.department, cluster=estate.cluster)
    member = MembershipFactory(user__username="dora", role=Role.MEMBER, project=gone).user
    row = ask(acting(member), now, group_by="Project")
    reports_services.sweep()
    gone.delete()
    assert "gone" in reports_services.file_of_report(key=row.pk, actor=acting(member))[1]


@pytest.mark.parametrize(
    ("requested", "pointer"),
    [
        pytest.param({"name": " "}, "/name", id="a blank name"),
        pytest.param({"name": "a\nb"}, "/name", id="a name of two lines"),
        pytest.param({"end": timedelta(hours=-2)}, "/end", id="it ends before it starts"),
        pytest.param({"start": timedelta(days=-401)}, "/start", id="longer than anything is kept"),
        pytest.param({"start": HOUR, "end": 2 * HOUR}, "/start", id="a time to come"),
        pytest.param({"start": timedelta(days=-300_000), "end": timedelta(days=-299_999)}, "/start", id="long ago"),
        pytest.param({"filter_by": ["projectName=llm-team"]}, "/filterBy/0", id="another operator"),
        pytest.param({"filter_by": ["clusterId==lab"]}, "/filterBy/0", id="no id of a cluster"),
        pytest.param({"filter_by": ["projectName=="]}, "/filterBy/0", id="no value"),
        pytest.param({"filter_by": ["projectName==a", "projectName==b"]}, "/filterBy/1", id="twice the same"),
        pytest.param({"filter_by": ["nodepoolName==h100"]}, "/filterBy/0", id="another field"),
        pytest.param({"filter_by": ["projectName==a\x00"]}, "/filterBy/0", id="NUL"),
        pytest.param({"group_by": "Department"}, "/groupBy", id="nothing of that kind to see"),
    ],
)
def test_a_refusal_names_the_field(
    estate: Project, as_bob: Actor, now: datetime, requested: dict[str, Any], pointer: str
) -> None:
    moved = {name: now + value if isinstance(value, timedelta) else value for name, value in requested.items()}
    with pytest.raises(ValidationFailed) as refused:
        ask(as_bob, now, **moved)
    assert refused.value.problems[0].pointer == pointer
    assert not Report.objects.exists()
    assert AuditRecord.objects.get(entity_type="report").result == "Denied"


def test_one_person_has_so_many_and_then_must_throw_some_away(estate: Project, as_bob: Actor, now: datetime) -> None:
    ReportFactory.create_batch(reports_services.MOST, subject_id=as_bob.id)
    with pytest.raises(Conflict) as refused:
        ask(as_bob, now)
    assert refused.value.code == "too_many"
    reports_services.delete_report(key=Report.objects.first().pk, actor=as_bob)
    assert ask(as_bob, now).status == "Pending"


def test_a_line_has_what_was_sampled(estate: Project, now: datetime) -> None:
    figures = {"gpu_held": 3000, "gpu_deserved": 2000, "cpu_held": 8000, "memory_held": 2**31, "waiting": 4}
    owner = SampleOwner("project", str(estate.pk))
    start = now.replace(second=0, microsecond=0) - HOUR
    for number in range(30):
        at = start + number * timedelta(minutes=1)
        whole = {ALL: figures, "h100": figures}
        Sample.objects.create(cluster=estate.cluster, kind=owner.kind, owner=owner.id, at=at, figures=whole)
    row = ReportFactory.build(start=start, end=start + HOUR)
    places = places_of(group_by="Project", filter_by=["projectName==llm-team"], actor=SYSTEM)
    head, line, end = file_of(lines_of(places, stretch_of(row, places, now=now))).split("\r\n")
    found = dict(zip(head.split(","), line.split(","), strict=True))
    assert end == ""
    assert (found["coveredHours"], found["coveredPercent"], found["samples"]) == ("0.500", "50.000", "30")
    assert (found["gpuAllocatedHours"], found["gpuDeservedHours"], found["gpuOverQuotaHours"]) == (
        "1.500",
        "1.000",
        "0.500",
    )
    assert (found["cpuAllocatedCoreHours"], found["memoryAllocatedGibHours"]) == ("4.000", "1.000")
    assert (found["workloadWaitingHours"], found["workloadHours"], found["gpuTotalHours"]) == ("2.000", "", "")
    assert Cluster.objects.get().name == found["cluster"]
