"""What projects hold, as the tenants' side is told it."""

from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster, NodePool
from tenants.organisation.models import Project
from tenants.usage.selectors import evictable_work
from tests.factories.workloads import WorkloadFactory
from workloads.dictionary.models import Priority
from workloads.state.models import Phase


@pytest.mark.parametrize(("flavour", "also"), [("kai", []), ("kueue", [("llm-team/fixed, low 40", 2000)])])
def test_evictable_work_is_listed_in_the_order_in_which_it_is_taken(
    llm_team: Project, vision_team: Project, h100: NodePool, a100: NodePool, flavour: str, also: list[tuple[str, int]]
) -> None:
    """Kueue evicts non-preemptible work, too."""
    Cluster.objects.update(flavour=flavour)
    now = timezone.now()
    common = {"project": llm_team, "phase": Phase.RUNNING, "running_pods": 1, "pool_name": "h100", "gpu_milli": 2000}
    high = {"priority": Priority.objects.get(name="high"), "priority_value": 125}
    WorkloadFactory(**common, name="old", started_at=now - timedelta(hours=2))
    WorkloadFactory(**common, **high, name="strong", started_at=now)
    WorkloadFactory(**common, name="earlier", started_at=now)  # in the same second
    WorkloadFactory(**common, name="young", started_at=now)
    WorkloadFactory(**common, name="fixed", preemptibility="non-preemptible", started_at=now + timedelta(seconds=1))
    WorkloadFactory(**{**common, "running_pods": 0}, name="waits")
    WorkloadFactory(**{**common, "pool_name": "a100"}, name="elsewhere")
    WorkloadFactory(**{**common, "project": vision_team}, name="theirs")
    work = evictable_work([llm_team.pk], "h100")
    assert [(each.label, each.held.gpu) for each in work] == [
        *also,
        ("llm-team/young, low 40", 2000),
        ("llm-team/earlier, low 40", 2000),
        ("llm-team/old, low 40", 2000),
        ("llm-team/strong, high 125", 2000),
    ]
