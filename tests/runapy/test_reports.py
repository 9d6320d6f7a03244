"""Usage reports through Run:ai's own client, read into its own classes; the file, which it cannot read, beside it."""

import csv
import io
from datetime import datetime, timedelta
from json import JSONDecodeError

import pytest
from django.utils import timezone
from runai import models
from runai.exceptions import ConflictException, NotFoundException, UnprocessableEntityException
from runai.runai_client import RunaiClient

from clusters.inventory.models import Cluster
from clusters.watch.services.usage import take_samples
from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.runapy.conftest import client_of
from workloads.reports import services as reports_services
from workloads.reports.models import Report
from workloads.state.models import Phase

HOUR = timedelta(hours=1)


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def sampled(llm_team: Project, vision_team: Project, now: datetime) -> Cluster:
    """Two GPUs held, measured once, a moment ago."""
    ObservedPodFactory(workload=WorkloadFactory(project=llm_team, phase=Phase.RUNNING), gpu_milli=2000)
    Cluster.objects.update(observed_at=now)
    take_samples()
    return llm_team.cluster


def fields(now: datetime, **more: object) -> models.ReportRequestFields:
    return models.ReportRequestFields(name="use", start=now - HOUR, end=now + HOUR, **more)


def test_asked_for_waited_for_read_and_thrown_away(runai: RunaiClient, sampled: Cluster, now: datetime) -> None:
    reports = runai.organizations.reports
    assert models.AreReportsAvailable200Response.from_dict(reports.are_reports_available().data).is_available
    wanted = fields(
        now, group_by="Project", filter_by=["projectName==llm-team", f"clusterId=={sampled.pk}"], description="of us"
    )
    requested = reports.create_report(wanted)
    pending = models.Report.from_dict(requested.data)
    assert (requested.status_code, pending.status, pending.status_message) == (202, "Pending", None)
    assert (pending.start, pending.end, pending.group_by) == (wanted.start, wanted.end, "Project")
    assert (pending.description, pending.filter_by) == ("of us", wanted.filter_by)
    assert (pending.created_by, pending.tenant_id) == ("moving-script", 1)
    with pytest.raises(ConflictException):
        reports.download_report_by_id(pending.id)
    reports_services.sweep()
    ready = models.Report.from_dict(reports.get_report_by_id(pending.id).data)
    assert (ready.status, ready.status_updated_at > pending.status_updated_at) == ("Ready", True)
    assert ready.status_message.endswith("% of the period.")
    with pytest.raises(JSONDecodeError):
        reports.download_report_by_id(pending.id)
    (row,) = csv.DictReader(io.StringIO(Report.objects.get().content))
    assert (row["project"], row["samples"]) == ("llm-team", "1")
    assert float(row["gpuAllocatedHours"]) == pytest.approx(2 * float(row["coveredHours"]), abs=0.002)
    assert reports.delete_report_by_id(pending.id).status_code == 204
    with pytest.raises(NotFoundException):
        reports.get_report_by_id(pending.id)


def test_lists_are_filtered_sorted_searched_and_cut(runai: RunaiClient, sampled: Cluster, now: datetime) -> None:
    reports = runai.organizations.reports
    for name in ("week 2", "week 1", "month"):
        reports.create_report({"name": name, "start": str(now - HOUR), "end": str(now)})

    def names(**query: object) -> list[str]:
        answer = reports.list_reports(**query).data
        assert set(answer) == {"reports"}
        return [each.name for each in models.ListReports200Response.from_dict(answer).reports]

    assert names() == ["week 2", "week 1", "month"]
    assert names(sort_by=models.ReportFilterAndSortFields.NAME) == ["month", "week 1", "week 2"]
    assert names(sort_by="createdAt", sort_order="desc", limit=1, offset=1) == ["week 1"]
    assert names(filter_by=["name=^week", "status==Pending"], sort_by="name") == ["week 1", "week 2"]
    assert names(search="MON") == ["month"]
    assert reports.count_reports(filter_by=["name!=month"]).data == {"count": 2}
    assert reports.count_reports(search="week 2").data == {"count": 1}


@pytest.mark.parametrize("group", list(models.ReportGroupByOptions))
def test_every_grouping_makes_a_file(
    runai: RunaiClient, sampled: Cluster, now: datetime, group: models.ReportGroupByOptions
) -> None:
    runai.organizations.reports.create_report(fields(now, group_by=group))
    reports_services.sweep()
    rows = list(csv.DictReader(io.StringIO(Report.objects.get(status="Ready").content)))
    assert len(rows) == (1 if group is models.ReportGroupByOptions.CLUSTER else 2)
    assert {row["samples"] for row in rows} == {"1"}


def test_a_member_is_told_of_the_own_project_only(
    live_server: object, runai: RunaiClient, sampled: Cluster, now: datetime, llm_team: Project
) -> None:
    foreign = runai.organizations.reports.create_report(fields(now, group_by="Project")).data["id"]
    member = client_of(live_server, "only-a-member", Role.MEMBER, project=llm_team).organizations.reports
    with pytest.raises(UnprocessableEntityException):
        member.create_report(fields(now, filter_by=["projectName==vision-team"]))
    member.create_report(fields(now, group_by="Project"))
    reports_services.sweep()
    text = Report.objects.get(subject_name="only-a-member").content
    assert ("llm-team" in text, "vision-team" in text) == (True, False)
    assert len(member.list_reports().data["reports"]) == 1
    with pytest.raises(NotFoundException):
        member.get_report_by_id(foreign)
    with pytest.raises(NotFoundException):
        member.download_report_by_id(foreign)
