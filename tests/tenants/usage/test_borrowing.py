"""Who borrows from whom: the arithmetic of the ledger, and what pages and REST say of it."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F, Max
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from clusters.inventory.models import Cluster, NodePool
from clusters.watch.models import Sample
from clusters.watch.services.usage import sample_clusters
from scheduling.model.resources import Resources
from tenants.access.models import Role, User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import ProjectQuota
from tenants.usage.rules import (
    BORROWED,
    LENT,
    UNDESERVED,
    BorrowLedger,
    EvictableWork,
    LoanKey,
    Parties,
    ledger_of,
    loans_at,
    spare_key,
)
from tenants.usage.selectors import Usage
from tests.factories.cast import Ledger
from tests.factories.tenants import GPU, MembershipFactory, ProjectFactory
from tests.support.rest_clients import Robot

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EVERY = timedelta(minutes=10)
MINE, LENDER, OTHER = "1", "2", "3"
NAMES = {LENDER: "lender", OTHER: "other", "4": "far"}


def parties(own: str, departments: Mapping[str, str] | None = None) -> Parties:
    """Of these own keys; without departments, each project is in another one."""
    return Parties(set(own.split()), {MINE: "mine", **NAMES}, "the rest", "spare quota", departments or {})


PARTIES = parties(MINE)
HOME, AWAY = spare_key(1), spare_key(2)
TWO_DEPARTMENTS = {MINE: HOME, LENDER: HOME, OTHER: AWAY, "4": AWAY}


def balances(*pairs: tuple[int, int]) -> dict[str, float]:
    """Of projects that deserve and hold so many GPUs: the own one, the lender, the other one, and more."""
    return {str(number): (deserved - held) * GPU for number, (deserved, held) in enumerate(pairs, start=1)}


class TestOneMoment:
    """What a project borrows and lends."""

    def test_what_lies_unused_is_lent_in_proportion(self) -> None:
        assert loans_at(balances((4, 10), (8, 2), (4, 1)), PARTIES) == {
            LoanKey(BORROWED, "lender"): 4 * GPU,
            LoanKey(BORROWED, "other"): 2 * GPU,
        }

    def test_two_borrowers_share_one_lender(self) -> None:
        there = balances((0, 3), (8, 0), (0, 1))
        assert loans_at(there, PARTIES) == {LoanKey(BORROWED, "lender"): 3 * GPU}
        assert loans_at(there, parties(LENDER)) == {LoanKey(LENT, "mine"): 3 * GPU, LoanKey(LENT, "other"): 1 * GPU}

    def test_what_nothing_deserves_is_no_projects_loan(self) -> None:
        assert loans_at(balances((0, 6), (4, 2)), PARTIES) == {
            LoanKey(BORROWED, "lender"): 2 * GPU,
            LoanKey(BORROWED, UNDESERVED): 4 * GPU,
        }

    @pytest.mark.parametrize("pairs", [((4, 4), (8, 2)), ((4, 0), (8, 8)), ()])
    def test_within_quota_there_is_no_loan(self, pairs: tuple[tuple[int, int], ...]) -> None:
        assert loans_at(balances(*pairs), PARTIES) == {}

    def test_projects_without_a_name_are_one_party(self) -> None:
        there = balances((0, 8), (0, 0), (0, 0), (0, 0), (3, 0), (5, 0))
        assert loans_at(there, PARTIES) == {LoanKey(BORROWED, "the rest"): 8 * GPU}

    def test_own_projects_lend_each_other_nothing_that_counts(self) -> None:
        both = parties(f"{MINE} {LENDER}")
        assert loans_at(balances((0, 8), (4, 0), (4, 0)), both) == {LoanKey(BORROWED, "other"): 4 * GPU}


class TestTwoDepartments:
    """Projects 1 and 2 are in one department, projects 3 and 4 in the other."""

    @pytest.mark.parametrize("own", [MINE, LENDER, OTHER, "4", f"{MINE} {LENDER} {HOME}", f"{OTHER} 4 {AWAY}"])
    def test_a_project_borrows_in_its_department_before_it_borrows_from_another(self, own: str) -> None:
        found = loans_at(balances((8, 10), (8, 3), (8, 4), (8, 4)), parties(own, TWO_DEPARTMENTS))
        expected = {MINE: {LoanKey(BORROWED, "lender"): 2 * GPU}, LENDER: {LoanKey(LENT, "mine"): 2 * GPU}}
        assert found == expected.get(own, {})

    def test_only_the_excess_of_the_department_is_borrowed_from_another(self) -> None:
        there = balances((8, 14), (8, 4), (8, 5), (8, 7))  # 2 above 16, and 4 below 16
        assert loans_at(there, parties(MINE, TWO_DEPARTMENTS)) == {
            LoanKey(BORROWED, "lender"): 4 * GPU,
            LoanKey(BORROWED, "other"): 1.5 * GPU,
            LoanKey(BORROWED, "far"): 0.5 * GPU,
        }
        assert loans_at(there, parties(LENDER, TWO_DEPARTMENTS)) == {LoanKey(LENT, "mine"): 4 * GPU}
        assert loans_at(there, parties(OTHER, TWO_DEPARTMENTS)) == {LoanKey(LENT, "mine"): 1.5 * GPU}
        assert loans_at(there, parties(f"{OTHER} 4 {AWAY}", TWO_DEPARTMENTS)) == {LoanKey(LENT, "mine"): 2 * GPU}

    def test_a_project_lends_only_what_its_own_department_leaves_unused(self) -> None:
        there = balances((8, 12), (8, 8), (8, 2), (8, 12))  # 4 above; 6 unused of which 4 are lent inside
        found = loans_at(there, parties(OTHER, TWO_DEPARTMENTS))
        assert found == {LoanKey(LENT, "far"): 4 * GPU, LoanKey(LENT, "mine"): 2 * GPU}
        assert loans_at(there, parties(MINE, TWO_DEPARTMENTS)) == {
            LoanKey(BORROWED, "other"): 2 * GPU,
            LoanKey(BORROWED, UNDESERVED): 2 * GPU,
        }

    def test_what_the_department_deserves_beyond_its_projects_is_not_borrowed_from_another(self) -> None:
        there = {**balances((8, 11), (8, 8), (8, 0)), HOME: 4 * GPU}
        assert loans_at(there, parties(MINE, TWO_DEPARTMENTS)) == {LoanKey(BORROWED, "spare quota"): 3 * GPU}
        assert loans_at(there, parties(f"{MINE} {LENDER} {HOME}", TWO_DEPARTMENTS)) == {}

    def test_a_department_lends_what_it_deserves_beyond_its_projects(self) -> None:
        there = {**balances((8, 11), (8, 8)), AWAY: 4 * GPU}
        assert loans_at(there, parties(MINE, TWO_DEPARTMENTS)) == {LoanKey(BORROWED, "spare quota"): 3 * GPU}
        assert loans_at(there, parties(f"{OTHER} 4 {AWAY}", TWO_DEPARTMENTS)) == {LoanKey(LENT, "mine"): 3 * GPU}


class TestOverTime:
    """GPU-hours, and since when."""

    KEY = LoanKey(BORROWED, "lender")

    def at(self, *held: int) -> BorrowLedger:
        """Samples ten minutes apart: the own project deserves 4 GPUs, the lender deserves 8 and uses none."""
        moments = [(NOON + EVERY * number, balances((4, each), (8, 0))) for number, each in enumerate(held)]
        return ledger_of(moments, PARTIES, every=EVERY * 1.5)

    def test_gpu_hours_are_gpus_times_the_time_between_samples(self) -> None:
        loan = self.at(10, 10, 7, 4).loans[self.KEY]
        assert loan.milli_hours / GPU == pytest.approx((6 + 6 + 3) / 6)
        assert (loan.gpu, loan.since) == (0, None)

    def test_a_loan_runs_since_it_was_last_zero(self) -> None:
        loan = self.at(10, 4, 6, 8).loans[self.KEY]
        assert (loan.gpu, loan.since) == (4 * GPU, NOON + 2 * EVERY)

    def test_a_gap_in_the_samples_counts_no_longer_than_one_sample_lasts(self) -> None:
        gap = [(NOON, balances((4, 10), (8, 0))), (NOON + timedelta(hours=5), balances((4, 10), (8, 0)))]
        loan = ledger_of(gap, PARTIES, every=EVERY).loans[self.KEY]
        assert loan.milli_hours / GPU == pytest.approx(1)
        assert loan.since == NOON + timedelta(hours=5)


def sampled(project: Project, *held: int, deserved: int = 4) -> None:
    """The project's part of samples of every ten minutes up to now, in h100."""
    last = Sample.objects.filter(cluster=project.cluster).aggregate(last=Max("at"))["last"]
    now = last or timezone.now().replace(second=0, microsecond=0)  # a minute may begin between two projects
    for number, each in enumerate(reversed(held)):
        sample, _made = Sample.objects.get_or_create(
            cluster=project.cluster,
            kind="quota-balance",
            owner=str(project.cluster_id),
            at=now - number * EVERY,
            defaults={"grain": 1, "figures": {"*": {}, "h100": {}}},
        )
        sample.figures["h100"][str(project.pk)] = (deserved - each) * GPU
        sample.save()


def test_a_sample_of_a_cluster_says_what_each_project_has_left_or_holds_beyond_its_quota(
    llm_team: Project, vision_team: Project, h100: NodePool, ledger: Ledger
) -> None:
    for project, held in ((llm_team, 6), (vision_team, 4)):  # each deserves 4
        ledger.holds(project, h100, Usage(allocated=Resources.of(gpu=held)))
    sample_clusters([llm_team.cluster_id], at=NOON)
    row = Sample.objects.get(kind="quota-balance")
    spare = {spare_key(each.department_id): 4 * GPU for each in (llm_team, vision_team)}  # each deserves 8
    balances = {str(llm_team.pk): -2 * GPU, **spare}
    assert (row.owner, row.figures) == (str(llm_team.cluster_id), {"*": {}, "h100": balances})


def test_a_sample_counts_a_department_that_deserves_less_than_its_projects_with_their_sum(
    llm_team: Project, h100: NodePool, ledger: Ledger
) -> None:
    ProjectQuota.objects.filter(project=llm_team).update(gpu_deserved=12 * GPU)
    ledger.holds(llm_team, h100, Usage(allocated=Resources.of(gpu=10)))
    sample_clusters([llm_team.cluster_id], at=NOON)
    assert Sample.objects.get(kind="quota-balance").figures["h100"] == {str(llm_team.pk): 2 * GPU}


@pytest.fixture
def lent(llm_team: Project, vision_team: Project) -> None:
    """For twenty minutes llm-team has held 6 GPUs; vision-team of another department uses none of its 4."""
    sampled(llm_team, 4, 6, 6, 6)
    sampled(vision_team, 0, 0, 0, 0)


def loans(robot: Robot, path: str) -> list[dict[str, Any]]:
    answer = robot.get(f"v1/org-unit/{path}/borrowing")
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["loans"]
    return found


def test_borrower_and_lender_see_the_same_loan(
    lent: None, robot: Robot, llm_team: Project, vision_team: Project
) -> None:
    (mine,) = loans(robot, f"projects/{llm_team.pk}")
    (theirs,) = loans(robot, f"projects/{vision_team.pk}")
    assert (mine["direction"], mine["counterparty"], mine["gpus"]) == ("borrowed", "vision-team", 2)
    assert (theirs["direction"], theirs["counterparty"], theirs["gpus"]) == ("lent", "llm-team", 2)
    assert mine["gpuHours"] == theirs["gpuHours"] == pytest.approx(2 * 20 / 60, abs=0.01)
    assert mine["since"] == theirs["since"] is not None


def test_a_member_does_not_learn_who_lends(lent: None, member: Robot, llm_team: Project, vision_team: Project) -> None:
    (mine,) = loans(member, f"projects/{llm_team.pk}")
    assert (mine["counterparty"], mine["gpus"]) == ("other projects", 2)
    assert member.get(f"v1/org-unit/projects/{vision_team.pk}/borrowing").status_code == 404
    assert member.get(f"v1/org-unit/departments/{vision_team.department_id}/borrowing").status_code == 404


def test_a_department_leaves_out_loans_between_its_own_projects(
    lent: None, robot: Robot, llm_team: Project, research: Department
) -> None:
    sampled(ProjectFactory(department=research, name="idle"), 0, 0, 0, 0, deserved=1)
    found = {each["counterparty"]: each["gpus"] for each in loans(robot, f"projects/{llm_team.pk}")}
    assert found == {"vision-team": 1, "idle": 1}
    (row,) = loans(robot, f"departments/{research.pk}")
    assert (row["counterparty"], row["gpus"]) == ("vision-team", 1)


def test_a_department_within_its_deserved_quota_borrows_nothing_from_another(
    llm_team: Project, vision_team: Project, h100: NodePool, ledger: Ledger, robot: Robot
) -> None:
    """llm-team holds 2 GPUs above its 4. research deserves 8, its projects 4."""
    ledger.holds(llm_team, h100, Usage(allocated=Resources.of(gpu=6)))
    sample_clusters([llm_team.cluster_id], at=timezone.now())
    (mine,) = loans(robot, f"projects/{llm_team.pk}")
    expected = ("borrowed", "quota that a department deserves beyond its projects", 2)
    assert (mine["direction"], mine["counterparty"], mine["gpus"]) == expected
    assert loans(robot, f"departments/{llm_team.department_id}") == []
    assert loans(robot, f"departments/{vision_team.department_id}") == []
    assert loans(robot, f"projects/{vision_team.pk}") == []


def test_work_is_listed_in_the_order_of_reclaim_until_it_covers_the_loan(
    lent: None, robot: Robot, llm_team: Project, h100: NodePool, ledger: Ledger
) -> None:
    work = [EvictableWork(f"llm-team/{name}, low 40", Resources.of(gpu=1), name) for name in ("a", "b", "c")]
    ledger.work[llm_team.pk, "h100"] = work
    found = robot.get(f"v1/org-unit/projects/{llm_team.pk}/borrowing").json()
    assert [each["workload"] for each in found["reclaimOrder"]] == ["llm-team/a, low 40", "llm-team/b, low 40"]


class TestLastSample:
    """What the ledger says of it, and when it was."""

    HEAD = r"GPUs at last sample\s*\(<time[^>]*>([^<]+)</time>\)"

    def age_on_page(self, admin: User, client_of: Callable[[User], Client]) -> str:
        found = re.search(self.HEAD, client_of(admin).get("/projects/llm-team/").content.decode())
        assert found
        return found[1]

    def test_the_column_says_when_it_was(
        self, lent: None, admin: User, client_of: Callable[[User], Client], llm_team: Project
    ) -> None:
        Sample.objects.update(at=F("at") - timedelta(minutes=8))
        assert self.age_on_page(admin, client_of) == "8 min ago"

    def test_the_newest_minute_says_what_is_borrowed_now(
        self, lent: None, robot: Robot, admin: User, client_of: Callable[[User], Client], llm_team: Project
    ) -> None:
        Sample.objects.update(at=F("at") - timedelta(minutes=8))
        now = Sample.objects.latest("at")
        now.pk, now.grain, now.at = None, 0, now.at + timedelta(minutes=6)
        now.figures["h100"][str(llm_team.pk)] = 0
        now.save()
        (mine,) = loans(robot, f"projects/{llm_team.pk}")
        assert (mine["gpus"], mine["since"]) == (0, None)
        assert mine["gpuHours"] == pytest.approx(2 * 26 / 60, abs=0.01)
        assert self.age_on_page(admin, client_of) == "2 min ago"

    def test_when_it_is_old_it_is_not_current_and_no_work_is_listed_as_reclaimed(
        self,
        lent: None,
        admin: User,
        client_of: Callable[[User], Client],
        robot: Robot,
        llm_team: Project,
        ledger: Ledger,
    ) -> None:
        ledger.work[llm_team.pk, "h100"] = [EvictableWork("llm-team/a, low 40", Resources.of(gpu=4), "a")]
        Sample.objects.update(at=F("at") - timedelta(hours=3))
        assert self.age_on_page(admin, client_of) == "not current: 3 h ago"
        found = robot.get(f"v1/org-unit/projects/{llm_team.pk}/borrowing").json()
        (mine,) = found["loans"]
        assert mine["gpus"] == 2
        assert mine["since"] < found["end"]
        assert found["reclaimOrder"] == []


@pytest.mark.parametrize(
    ("flavour", "why"),
    [
        ("kube", "no borrowing, no reclaim"),
        ("volcano", "Assumption: default configuration, because it cannot be read on this cluster."),
    ],
)
def test_where_a_scheduler_takes_nothing_back_no_work_is_listed_as_reclaimed(
    lent: None, robot: Robot, llm_team: Project, h100: NodePool, ledger: Ledger, flavour: str, why: str
) -> None:
    Cluster.objects.update(flavour=flavour)
    ledger.work[llm_team.pk, "h100"] = [EvictableWork("llm-team/a, low 40", Resources.of(gpu=4), "a")]
    found = robot.get(f"v1/org-unit/projects/{llm_team.pk}/borrowing").json()
    assert found["loans"][0]["gpus"] == 2
    assert found["reclaimOrder"] == []
    assert why in found["basis"].partition("Nothing is taken back. ")[2]


def test_an_unknown_span_is_400_at_its_parameter(robot: Robot, llm_team: Project) -> None:
    answer = robot.get(f"v1/org-unit/projects/{llm_team.pk}/borrowing?span=1y")
    assert answer.status_code == 400
    assert "/span" in answer.content.decode()


def test_the_project_page_shows_the_loan_to_its_member(
    lent: None, bob: User, client_of: Callable[[User], Client]
) -> None:
    page = client_of(bob).get("/projects/llm-team/").content.decode()
    section = page[page.index('id="borrowing"') :]
    assert "borrowed from" in section
    assert "other projects" in section
    assert "vision-team" not in page


class TestDepartmentPage:
    """The ledger of a department, its use, and those of its projects that the reader may see."""

    def test_it_shows_the_loans_of_its_projects_and_leads_from_the_project(
        self, lent: None, admin: User, client_of: Callable[[User], Client], research: Department
    ) -> None:
        client = client_of(admin)
        page = client.get(f"/departments/{research.pk}/").content.decode()
        section = page[page.index('id="borrowing"') :]
        assert "borrowed from" in section
        assert "vision-team" in section
        assert 'href="/projects/llm-team/"' in page
        for origin in ("/projects/llm-team/", "/quotas/"):
            assert f'href="/departments/{research.pk}/"' in client.get(origin).content.decode()

    def test_its_admin_reads_no_names_of_other_departments(
        self, lent: None, client_of: Callable[[User], Client], research: Department
    ) -> None:
        lead = MembershipFactory(role=Role.DEPARTMENT_ADMIN, project=None, department=research).user
        page = client_of(lead).get(f"/departments/{research.pk}/?span=7d").content.decode()
        assert "other projects" in page
        assert "vision-team" not in page

    def test_it_is_absent_for_who_may_not_see_it(
        self, lent: None, bob: User, client_of: Callable[[User], Client], research: Department, perception: Department
    ) -> None:
        client = client_of(bob)
        assert client.get(f"/departments/{perception.pk}/").status_code == 404
        assert client.get("/departments/999999/").status_code == 404
        assert f'href="/departments/{perception.pk}/"' not in client.get("/quotas/").content.decode()


def test_queries_do_not_grow_with_projects(lent: None, robot: Robot, llm_team: Project, research: Department) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            loans(robot, f"projects/{llm_team.pk}")
        return len(found)

    before = queries()
    for each in ProjectFactory.create_batch(4, department=research):
        sampled(each, 0, 0, 0, 0)
    assert queries() == before
