"""Time limits of departments and projects: what is refused, what is kept, and how the console sets them."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from django.test import Client
from django.urls import reverse

from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, Forbidden, NotFound, ValidationFailed
from portal.kit.security.actors import SYSTEM, Actor
from tenants.access.models import User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import TimeLimit
from tenants.quotas.selectors.runtime_rules import limits_of
from tenants.quotas.services.runtime_rules import remove_limit, set_limit
from tests.factories.cast import acting, applied

DAY = 24 * 60


@dataclass(frozen=True)
class Asked:
    """What a rule is set to."""

    minutes: int
    category: str = "Train"
    notice_minutes: int = 10
    reason: str = ""

    def of(self, owner: Department | Project, actor: Actor = SYSTEM) -> TimeLimit:
        """Set it."""
        return set_limit(
            TimeLimit,
            owner=owner,
            category=self.category,
            minutes=self.minutes,
            notice_minutes=self.notice_minutes,
            actor=actor,
            reason=self.reason,
        )


def bound(owner: Department | Project, minutes: int) -> TimeLimit:
    """A rule for Train, set by the system."""
    return Asked(minutes).of(owner)


def test_a_rule_is_kept_with_author_and_reason(llm_team: Project, admin: User) -> None:
    Asked(DAY, reason="Nights are for others").of(llm_team, acting(admin))
    Asked(60, reason="Days, too").of(llm_team, acting(admin))
    (rule,) = TimeLimit.objects.all()
    assert [(each.minutes, each.history_change_reason) for each in rule.history.order_by("history_id")] == [
        (DAY, "Nights are for others"),
        (60, "Days, too"),
    ]
    entry = AuditRecord.objects.filter(action="time_limit.set").latest("id")
    assert (entry.project_id, entry.detail["before"]["minutes"], entry.detail["after"]["minutes"]) == (
        str(llm_team.pk),
        DAY,
        60,
    )


@pytest.mark.parametrize(
    ("requested", "pointer"),
    [
        (Asked(0), "/minutes"),
        (Asked(367 * DAY), "/minutes"),
        (Asked(10, notice_minutes=10), "/noticeMinutes"),
        (Asked(10, notice_minutes=-1), "/noticeMinutes"),
        (Asked(10, reason="x" * 501), "/reason"),
        (Asked(60, category="Dream"), "/category"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_field(llm_team: Project, requested: Asked, pointer: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        requested.of(llm_team)
    assert refused.value.problems[0].pointer == pointer
    assert not TimeLimit.objects.exists()


def test_a_project_may_only_tighten_what_its_department_allows(research: Department, llm_team: Project) -> None:
    bound(research, 120)
    with pytest.raises(Conflict) as looser:
        bound(llm_team, 121)
    assert "120 minutes" in looser.value.message
    bound(llm_team, 90)
    assert [(category, found.rule_of) for category, found in limits_of(llm_team)] == [("Train", "project llm-team")]
    bound(research, 30)
    assert [(category, found.rule_of) for category, found in limits_of(llm_team)] == [("Train", "department research")]


def test_a_lifted_rule_leaves_the_departments(research: Department, llm_team: Project) -> None:
    bound(research, 120)
    remove_limit(limit=bound(llm_team, 90), actor=SYSTEM, reason="Enough")
    assert [found.rule_of for _, found in limits_of(llm_team)] == ["department research"]
    assert AuditRecord.objects.get(action="time_limit.lift").detail["before"]["minutes"] == 90


def test_who_may_not_set_quotas_may_not_set_limits(llm_team: Project, bob: User, charlie: User) -> None:
    with pytest.raises(Forbidden):
        Asked(60).of(llm_team, acting(bob))
    with pytest.raises(NotFound):
        Asked(60).of(llm_team, acting(charlie))


def test_the_console_sets_one_and_says_what_is_wrong(
    client_of: Callable[[User], Client], admin: User, llm_team: Project
) -> None:
    console, page = client_of(admin), reverse("admin:tenants_timelimit_add")
    form = {"project": llm_team.pk, "category": "Train", "minutes": 60, "notice_minutes": 60, "reason": "Fairness"}
    for wrong, said in (
        ({"notice_minutes": 60}, "The notice must be shorter"),
        ({"project": ""}, "Choose a department or a project."),
        ({"category": "Dream"}, "Unknown category."),
    ):
        answer = console.post(page, {**form, "notice_minutes": 15, **wrong})
        assert said in str(answer.context["adminform"].form.errors)
    applied(console, console.post(page, {**form, "notice_minutes": 15}))
    assert str(TimeLimit.objects.get()) == "llm-team: Train"
    listed = console.get(reverse("admin:tenants_timelimit_changelist")).content.decode()
    assert "project llm-team" in listed
    shown = client_of(admin).get(f"/projects/{llm_team.name}/").content.decode()
    assert "Train workloads are stopped after" in " ".join(shown.split())
