"""A node pool that becomes other nodes: what runs stays where it is, what waits is recreated for those it has now."""

import pytest
from django.utils import timezone

from clusters.flavours.kueue import ANY_PLACES
from clusters.inventory.models import NodePool
from clusters.inventory.services.inventory import update_node_pool
from clusters.ports.objects import VOLCANO_POD_GROUP
from clusters.watch.models import ObservedPod
from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tests.factories.workloads import pytorch_job
from tests.workloads.sandbox_lab import Lab, fresh, made
from workloads.lifecycle.services import relocation
from workloads.lifecycle.services.actions import delete, stop
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
POOL = "rung.dev/node-pool"
FLAVOURS = ["kube", "kube-gangs", "kai", "kueue", "volcano"]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the queues: the test makes them first."""
    monkeypatch.setattr(relocation, "FIRST_THE_QUEUES", relocation.FIRST_THE_QUEUES * 0)


def node_of(workload: Workload) -> str:
    return ObservedPod.objects.get(owner_id=str(workload.pk), gone_at=None).node_name


def until_running(lab: Lab, workload: Workload) -> None:
    for _ in range(10):
        if fresh(workload).phase == Phase.RUNNING:
            return
        Workload.objects.exclude(due_at=None).update(due_at=timezone.now())
        lab.settle(1, seconds=15)
    assert fresh(workload).phase == Phase.RUNNING


def relabel(**change: object) -> None:
    update_node_pool(pool=NodePool.objects.get(), actor=SYSTEM, **change)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_waits_starts_on_the_nodes_that_the_pool_has_now(flavour: str) -> None:
    lab = Lab(flavour)
    team = lab.project("llm-team", deserved=16)
    runs = lab.submit(team, "runs", gpus=6)
    lab.settle()
    waits = lab.submit(team, "waits", gpus=6)
    lab.settle()
    assert (fresh(runs).phase, fresh(waits).phase) == (Phase.RUNNING, Phase.PENDING)
    generation = fresh(runs).generation
    lab.node("other", **{POOL: "new"})
    relabel(label_value="new")
    until_running(lab, waits)
    assert (node_of(waits), node_of(runs)) == ("other", "node-0")
    assert fresh(runs).generation == generation


def test_the_audit_record_says_how_many_are_recreated() -> None:
    lab = Lab("kai")
    team = lab.project("llm-team", deserved=16)
    for number in range(3):
        lab.submit(team, f"job-{number}", gpus=6)
    lab.settle()
    relabel(label_value="new")
    assert AuditRecord.objects.filter(action="node_pool.update").latest("pk").detail["recreated"] == 2


def test_what_leaves_its_nodes_alone_touches_no_workload() -> None:
    lab = Lab("kai")
    waits = lab.submit(lab.project("llm-team"), "large", gpus=12)
    lab.settle()
    before = fresh(waits).generation
    relabel(gpu_placement="spread", label_value="h100")
    assert fresh(waits).generation == before


def places_asked_for(lab: Lab, workload: Workload) -> bool:
    found = made(lab, workload)
    assert found is not None
    template = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    return ANY_PLACES in template["metadata"].get("annotations", {})


def test_on_kueue_what_was_queued_before_a_pool_had_levels_asks_for_places_after_it() -> None:
    """Beside pools without levels Kueue lets in only what asks for them."""
    lab = Lab("kueue", nodes=0)
    lab.node("only", gpus=8, rack="a")
    team = lab.project("llm-team", deserved=6, limit=6)
    runs = lab.submit(team, "runs", gpus=6)
    lab.settle()
    queued = lab.submit(team, "queued", gpus=6)
    lab.settle()
    assert (fresh(runs).phase, fresh(queued).phase) == (Phase.RUNNING, Phase.PENDING)
    assert not places_asked_for(lab, queued)
    delete(workload=fresh(runs), actor=SYSTEM)
    relabel(topology_levels=["rack"])
    until_running(lab, queued)
    assert places_asked_for(lab, queued)


def test_a_gang_that_waits_keeps_to_its_level_when_narrower_ones_are_added() -> None:
    """Volcano counts levels from the narrowest: what was the first is the second then."""
    lab = Lab("volcano", nodes=0)
    for number in range(2):
        lab.node(f"node-{number}", gpus=8, rack="a", host=str(number))
    team = lab.project("llm-team", deserved=32)
    relabel(topology_levels=["rack"])
    runs = lab.submit(team, "runs", gpus=8)
    lab.settle()
    manifest = pytorch_job("gang", gpus=8, workers=1)
    manifest["metadata"]["annotations"] = {"rung.dev/topology-key": "rack"}
    gang = lab.submit(team, "gang", manifest=manifest)
    lab.settle()
    assert (fresh(runs).phase, fresh(gang).phase) == (Phase.RUNNING, Phase.PENDING)
    assert widest_tier(lab, gang) == 1
    relabel(topology_levels=["rack", "host"])
    delete(workload=fresh(runs), actor=SYSTEM)
    until_running(lab, gang)
    assert widest_tier(lab, gang) == 2


def widest_tier(lab: Lab, workload: Workload) -> int:
    group = made(lab, workload, VOLCANO_POD_GROUP)
    assert group is not None
    tier: int = group["spec"]["networkTopology"]["highestTierAllowed"]
    return tier


def test_what_is_stopped_stays_so() -> None:
    lab = Lab("kai")
    stopped = lab.submit(lab.project("llm-team"), "stopped", gpus=6)
    lab.settle()
    stop(workload=fresh(stopped), actor=SYSTEM)
    lab.settle(5, seconds=15)
    assert fresh(stopped).phase == Phase.STOPPED
    relabel(label_value="new")
    lab.node("other", **{POOL: "new"})
    lab.settle(3, seconds=15)
    assert fresh(stopped).phase == Phase.STOPPED
