"""What a new installation brings along."""

import pytest

from clusters.ports.workload_kinds import KINDS
from workloads.dictionary.models import Category, Priority, WorkloadType
from workloads.state.models import Phase
from workloads.state.rules import TRANSITIONS

pytestmark = pytest.mark.django_db


def test_the_seven_priorities_of_runai_are_there() -> None:
    priorities = dict(Priority.objects.filter(source="Run:ai").values_list("name", "value"))
    assert priorities == {
        "very-low": 25,
        "low": 40,
        "medium-low": 65,
        "medium": 80,
        "medium-high": 90,
        "high": 125,
        "very-high": 150,
    }


@pytest.mark.parametrize(
    ("category", "priority", "preemptibility"),
    [
        ("Build", "high", "non-preemptible"),
        ("Train", "low", "preemptible"),
        ("Deploy", "very-high", "non-preemptible"),
    ],
)
def test_every_type_of_a_category_starts_from_its_defaults(category: str, priority: str, preemptibility: str) -> None:
    row = Category.objects.get(name=category)
    assert (row.priority.name, row.preemptibility) == (priority, preemptibility)
    assert set(row.types.values_list("priority__name", "preemptibility")) == {(priority, preemptibility)}


def test_every_kind_that_can_be_submitted_is_a_type_of_its_group() -> None:
    types = dict(WorkloadType.objects.filter(native=False).values_list("name", "group"))
    assert types == {kind.name: kind.group or "core" for kind in KINDS}


def test_surprising_categories_are_kept() -> None:
    surprises = WorkloadType.objects.filter(name__in=["Job", "Pod", "CronJob", "Workflow", "PipelineRun"])
    assert dict(surprises.values_list("name", "category__name")) == {
        "Job": "Build",
        "Pod": "Deploy",
        "CronJob": "Deploy",
        "Workflow": "Deploy",
        "PipelineRun": "Deploy",
    }


def test_a_spot_request_has_no_default_and_an_nvcf_function_has_a_fixed_one() -> None:
    spot = WorkloadType.objects.get(name="SPOTRequest")
    assert (spot.category, spot.priority, spot.preemptibility) == (None, None, "")
    assert list(WorkloadType.objects.filter(fixed=True).values_list("name", flat=True)) == ["NVCF"]


def test_the_table_of_moves_knows_every_phase_and_no_other() -> None:
    assert set(TRANSITIONS) == set(Phase.values)
    assert set().union(*TRANSITIONS.values()) <= set(Phase.values)
