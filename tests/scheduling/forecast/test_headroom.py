"""What a queue could start now, in closed form, and that every scheduler's rules say the same."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.forecast.cycle import Flavour, preview
from scheduling.forecast.headroom import (
    COUNTS_FIXED_APART,
    SHARING,
    Bound,
    DeservedUse,
    FixedHeadroom,
    Headroom,
    Headrooms,
    PoolCapacity,
    QueueHolding,
    Reclaim,
    Sharing,
)
from scheduling.model.decisions import Outcome, OutcomeKind
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import PodGroup, Queue, Snapshot, SnapshotNode, Strategy
from scheduling.rules.kueue.capacity import ENDLESS
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.queue_usage import QueueUsageTracker
from tests.builders import gang, queue
from tests.scheduling import test_invariants
from tests.scheduling.rules.kueue import test_invariants as test_kueue_invariants

GPU = 1000
FULL = PoolCapacity(0, 0)
modest = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def of(
    *queues: Queue, holds: dict[str, tuple[int, int]] | None = None, capacity: PoolCapacity = FULL, sharing: Sharing
) -> Headroom:
    """Headroom of the queue `mine`. holds: GPUs, and of them those that are never evicted."""
    holdings = {name: QueueHolding(total * GPU, fixed * GPU) for name, (total, fixed) in (holds or {}).items()}
    return Headrooms(queues, holdings, capacity, sharing=sharing).of("mine")


def free(gpus: int, largest: int | None = None) -> PoolCapacity:
    return PoolCapacity(gpus * GPU, (gpus if largest is None else largest) * GPU)


def numbers(found: Headroom) -> tuple[float, ...]:
    return tuple(each / GPU for each in (found.inside, found.over, found.largest, found.back))


class TestWhatBinds:
    """The smallest of the limits, what is lent and what is free."""

    def test_free_gpus_are_split_at_the_deserved_quota(self) -> None:
        found = of(queue("mine", deserved=4), capacity=free(12, 8), sharing=Sharing.RECLAIMED)
        assert (numbers(found), found.bound, found.now) == ((4, 8, 8, 0), Bound.FREE, 12 * GPU)

    def test_a_projects_limit_binds_though_gpus_are_free(self) -> None:
        found = of(queue("mine", deserved=4, limit=6), holds={"mine": (6, 0)}, capacity=free(32), sharing=Sharing.TAKEN)
        assert (numbers(found), found.bound) == ((0, 0, 0, 0), Bound.PROJECT_LIMIT)
        assert (found.allowed, found.used) == (6 * GPU, 6 * GPU)

    def test_a_departments_limit_counts_its_other_projects(self) -> None:
        rows = queue("d", limit=8), queue("mine", "d", deserved=4), queue("other", "d")
        found = of(*rows, holds={"other": (5, 0)}, capacity=free(32), sharing=Sharing.RECLAIMED)
        assert (numbers(found), found.bound) == ((3, 0, 3, 1), Bound.DEPARTMENT_LIMIT)
        assert (found.allowed, found.used) == (8 * GPU, 5 * GPU)

    def test_what_is_lent_binds_though_gpus_are_free(self) -> None:
        rows = queue("d", "root", deserved=8), queue("mine", "d", deserved=4), queue("other", "d", deserved=4)
        found = of(*rows, holds={"other": (2, 0)}, capacity=free(32), sharing=Sharing.LENT)
        assert (numbers(found), found.bound) == ((4, 2, 6, 0), Bound.LENDABLE)

    def test_without_any_bound_of_quota_the_nodes_bind(self) -> None:
        found = of(queue("mine", deserved=None), capacity=free(3), sharing=Sharing.LENT)
        assert (numbers(found), found.bound) == ((3, 0, 3, 0), Bound.FREE)


class TestWhatMayBeNonPreemptible:
    """Within the deserved quotas by its own sum; elsewhere no workload of more than is deserved."""

    def test_preemptible_work_over_quota_leaves_the_deserved_quota_to_it(self) -> None:
        found = of(queue("mine", deserved=34), holds={"mine": (37, 29)}, capacity=free(8), sharing=Sharing.RECLAIMED)
        assert (found.inside, found.over) == (0, 8 * GPU)
        assert found.fixed == FixedHeadroom(5 * GPU, 5 * GPU, bound=DeservedUse(34 * GPU, 29 * GPU))

    def test_not_beyond_what_else_binds(self) -> None:
        found = of(queue("mine", deserved=34), holds={"mine": (37, 29)}, capacity=free(1), sharing=Sharing.RECLAIMED)
        assert found.fixed.all == GPU

    def test_what_the_department_deserves_counts_that_of_its_other_projects(self) -> None:
        rows = queue("d", deserved=8), queue("mine", "d", deserved=6), queue("other", "d", deserved=6)
        found = of(*rows, holds={"other": (6, 6)}, capacity=free(16), sharing=Sharing.RECLAIMED)
        assert (found.inside, found.fixed.all) == (6 * GPU, 2 * GPU)
        assert found.fixed.bound == DeservedUse(8 * GPU, 6 * GPU, department=True)

    @pytest.mark.parametrize(("deserved", "all_of_it", "each"), [(4, 16, 4), (0, 0, 0), (32, 16, 16)])
    def test_where_all_work_counts_alike_one_workload_is_bounded(
        self, deserved: int, all_of_it: int, each: int
    ) -> None:
        rooms = Headrooms([queue("mine", deserved=deserved)], {}, free(16), sharing=Sharing.TAKEN, apart=False)
        found = rooms.of("mine").fixed
        assert (found.all, found.each) == (all_of_it * GPU, each * GPU)


EIGHT = PoolCapacity(8 * GPU, 8 * GPU, Resources.of(cpu=28, memory="900Gi"), Resources.of(8, 64, "1Ti"))
"""A node of 8 GPUs, 64 CPUs and 1 TiB, with all GPUs and 28 CPUs free."""


class TestWhatIsShortBesideGpus:
    """CPU and memory, where less than half of the GPUs' part of their nodes is left."""

    def test_what_the_nodes_have_free(self) -> None:
        (found,) = of(queue("mine"), capacity=EIGHT, sharing=Sharing.RECLAIMED).scarce
        assert (found.name, found.left, found.bound) == ("cpu", 28_000, Bound.FREE)

    def test_enough_for_the_gpus_that_may_start_is_not_named(self) -> None:
        assert of(queue("mine", limit=3), capacity=EIGHT, sharing=Sharing.RECLAIMED).scarce == ()

    def test_a_limit_of_the_project_or_department(self) -> None:
        used = {"other": QueueHolding(beside=Resources.of(cpu=10))}
        rows = Queue("d", limit=Limit.of(cpu=12)), Queue("mine", "d", limit=Limit.of(cpu=4)), Queue("other", "d")
        found = Headrooms(rows, used, EIGHT, sharing=Sharing.RECLAIMED).of("mine").scarce[0]
        assert (found.left, found.bound, found.allowed, found.used) == (2000, Bound.DEPARTMENT_LIMIT, 12_000, 10_000)

    def test_quota_that_can_be_lent(self) -> None:
        rows = [Queue("mine", "root", deserved=Limit.of(2, 4)), Queue("other", "root", deserved=Limit.of(2, 4))]
        used = {"other": QueueHolding(GPU, beside=Resources.of(cpu=3))}
        found = Headrooms(rows, used, EIGHT, sharing=Sharing.LENT).of("mine")
        assert (found.now, [(each.name, each.left, each.bound) for each in found.scarce]) == (
            3 * GPU,
            [("cpu", 5000, Bound.LENDABLE)],
        )

    @pytest.mark.parametrize("asks", [True, False])
    def test_an_exhausted_limit_stops_every_pod_only_where_every_pod_asks(self, asks: bool) -> None:
        rows, used = [Queue("mine", limit=Limit.of(cpu=4))], {"mine": QueueHolding(beside=Resources.of(cpu=4))}
        found = Headrooms(rows, used, EIGHT, sharing=Sharing.TAKEN, every_pod_asks=asks).of("mine")
        assert found.now == (0 if asks else 8 * GPU)
        named = (found.resource, found.bound) if asks else (found.scarce[0].name, found.scarce[0].bound)
        assert named == ("cpu", Bound.PROJECT_LIMIT)

    @pytest.mark.parametrize("flavour", ["kube", "kai", "volcano"])
    def test_the_rules_start_as_much_of_it_and_no_more(self, flavour: str) -> None:
        node = SnapshotNode("n", "default", Resources.of(8, 64, "1Ti"))
        runs = pods_of("old", Resources.of(cpu=36), node="n")
        cluster = Snapshot((node,), (queue("mine"),), (runs,))
        (found,) = of(queue("mine"), capacity=EIGHT, sharing=SHARING[Flavour(flavour)]).scarce
        for cpu, starts in ((found.left, True), (found.left + 1000, False)):
            new = pods_of("new", Resources(GPU, cpu))
            assert (preview(cluster, new, flavour=flavour).kind is OutcomeKind.PLACED) is starts


def pods_of(name: str, requests: Resources, *, node: str = "") -> PodGroup:
    """One pod that asks for this much and evicts nobody."""
    made = gang(name, queue="mine", priority=25, pods=1, nodes=(node,) if node else ())
    return replace(made, pods=tuple(replace(pod, requests=requests) for pod in made.pods))


class TestWhatOthersCouldHaveToGiveBack:
    """Only within quota, and only where the scheduler takes anything back."""

    @pytest.mark.parametrize(
        ("sharing", "back"),
        [
            pytest.param(Sharing.TAKEN, 0, id="nothing is taken back"),
            pytest.param(Sharing.RECLAIMED, 3, id="what may be evicted"),
            pytest.param(Sharing.RECLAIMED_BY_QUEUES, 3, id="the same by queues"),
            pytest.param(Sharing.LENT, 4, id="whatever is lent"),
        ],
    )
    def test_what_is_over_quota(self, sharing: Sharing, back: int) -> None:
        rows = queue("mine", "root", deserved=4), queue("other", "root", deserved=2)
        found = of(*rows, holds={"other": (6, 3)}, sharing=sharing)
        assert numbers(found)[3] == back

    def test_a_queue_over_its_own_quota_gives_itself_nothing(self) -> None:
        found = of(queue("mine", deserved=2), holds={"mine": (4, 0)}, sharing=Sharing.RECLAIMED)
        assert numbers(found)[3] == 0

    def test_not_beyond_a_limit(self) -> None:
        rows = queue("mine", deserved=4, limit=4), queue("other")
        found = of(*rows, holds={"mine": (3, 0), "other": (8, 0)}, sharing=Sharing.RECLAIMED)
        assert numbers(found)[3] == 1

    def test_departments_are_compared_where_the_paths_part(self) -> None:
        rows = (
            queue("d1", deserved=4),
            queue("mine", "d1", deserved=4),
            queue("d2", deserved=4),
            queue("rich", "d2", deserved=0),
            queue("poor", "d2", deserved=4),
        )
        inside = of(*rows, holds={"rich": (4, 0)}, sharing=Sharing.RECLAIMED)
        beyond = of(*rows, holds={"rich": (5, 0), "poor": (2, 0)}, sharing=Sharing.RECLAIMED)
        by_queues = of(*rows, holds={"rich": (4, 0)}, sharing=Sharing.RECLAIMED_BY_QUEUES)
        assert (numbers(inside)[3], numbers(beyond)[3], numbers(by_queues)[3]) == (0, 3, 4)

    def test_a_departments_limit_does_not_keep_a_project_from_what_its_sibling_borrows(self) -> None:
        rows = queue("d", "root", deserved=4, limit=4), queue("mine", "d", deserved=4), queue("other", "d")
        found = of(*rows, holds={"other": (4, 0)}, capacity=free(8), sharing=Sharing.LENT)
        assert (numbers(found), found.bound) == ((0, 0, 0, 4), Bound.DEPARTMENT_LIMIT)


def running(cluster: Snapshot) -> Snapshot:
    """Only what runs in it: nothing waits that could come first."""
    groups = tuple(group for group in cluster.groups if group.holding and not group.waiting)
    groups = tuple(each for each in groups if not any(pod.terminating for pod in each.pods))
    return Snapshot(cluster.nodes, cluster.queues, groups)


def claim(leaf: str, gpus: int, flavour: str, *, fixed: bool = False) -> PodGroup:
    """This many pods of a GPU each, whose priority evicts no other workload. fixed: non-preemptible."""
    whole = flavour in {Flavour.KAI, Flavour.KUEUE, Flavour.VOLCANO}
    least = gpus if whole else 1
    return gang("new", queue=leaf, priority=25, preemptible=not fixed, pods=gpus, min_member=least, created=999)


def headroom_in(cluster: Snapshot, leaf: str, flavour: str) -> Headroom:
    """From the same board and groups that the rules decide on."""
    holdings: dict[str, QueueHolding] = {}
    for group in cluster.groups:
        gpus = group.total.gpu
        had = holdings.get(group.queue, QueueHolding())
        holdings[group.queue] = QueueHolding(had.all + gpus, had.fixed + (0 if group.preemptible else gpus))
    capacity = PoolCapacity(ENDLESS, ENDLESS)
    if cluster.nodes:
        amounts = SchedulingState(cluster, default=Strategy.BINPACK).capacities.free(claim(leaf, 1, flavour))
        capacity = PoolCapacity(*(each.gpu for each in amounts))
    apart = flavour in COUNTS_FIXED_APART
    return Headrooms(cluster.queues, holdings, capacity, sharing=SHARING[Flavour(flavour)], apart=apart).of(leaf)


def requested(cluster: Snapshot, leaf: str, gpus: int, flavour: str, *, fixed: bool = False) -> Outcome:
    return preview(cluster, claim(leaf, gpus, flavour, fixed=fixed), flavour=flavour)


def check(cluster: Snapshot, leaf: str, flavour: str) -> None:
    found = headroom_in(cluster, leaf, flavour)
    now = found.now // GPU
    if now:
        assert requested(cluster, leaf, now, flavour).kind is OutcomeKind.PLACED
    more = requested(cluster, leaf, now + 1, flavour)
    assert more.kind is not OutcomeKind.PLACED
    surplus = flavour == Flavour.VOLCANO  # takes pods above the minimum of a gang, whatever their queue deserves
    if more.kind is OutcomeKind.RECLAIMS and within_quota(cluster, leaf, now + 1) and not surplus:
        assert found.back
    check_non_preemptible(cluster, leaf, flavour, found)


def check_non_preemptible(cluster: Snapshot, leaf: str, flavour: str, found: Headroom) -> None:
    """Where all work counts alike, only submission refuses more than is deserved: as much as may start starts."""
    fixed = found.fixed.all // GPU
    if fixed:
        assert requested(cluster, leaf, fixed, flavour, fixed=True).kind is OutcomeKind.PLACED
    if flavour in COUNTS_FIXED_APART:
        assert requested(cluster, leaf, fixed + 1, flavour, fixed=True).kind is not OutcomeKind.PLACED


def within_quota(cluster: Snapshot, leaf: str, gpus: int) -> bool:
    """Would the queue and everything above it still be within what they deserve?"""
    usage, asked_for = QueueUsageTracker(cluster.queues), Resources(gpus * GPU)
    for group in cluster.groups:
        usage.charge(group.queue, group.total, preemptible=group.preemptible)
    return all((usage.uses[row.name].allocated + asked_for).within(row.deserved) for row in usage.path(leaf))


@modest
@given(test_invariants.clusters(), st.sampled_from(["kube", "kai", "volcano"]), st.sampled_from(test_invariants.LEAVES))
def test_the_rules_start_as_much_and_no_more(cluster: Snapshot, flavour: str, leaf: str) -> None:
    for before, _decisions, _after in test_invariants.life(cluster, flavour):
        check(running(before), leaf, flavour)


@modest
@given(test_kueue_invariants.clusters(), st.sampled_from(test_kueue_invariants.LEAVES))
def test_kueue_admits_as_much_and_no_more(cluster: Snapshot, leaf: str) -> None:
    held = tuple(group for group in cluster.groups if group.started is not None)
    check(Snapshot(cluster.nodes, cluster.queues, held), leaf, Flavour.KUEUE)


class TestReclaimUpToTheFairShare:
    """KAI reclaims above deserved quotas, from who is above its fair share for who is below."""

    ROWS = queue("busy", deserved=2), queue("mine", deserved=2)

    def found(self, busy: int, mine: int, *, fixed: int = 0, limit: int | None = None) -> list[Reclaim]:
        """Both fair shares are 4 of 8 GPUs."""
        rows = self.ROWS[0], replace(self.ROWS[1], limit=Limit.of(gpu=limit))
        holds = {"busy": QueueHolding(busy * GPU, fixed * GPU), "mine": QueueHolding(mine * GPU)}
        rooms = Headrooms(rows, holds, FULL, sharing=Sharing.RECLAIMED)
        return list(rooms.reclaims({"busy": 4 * GPU, "mine": 4 * GPU}))

    def test_above_its_deserved_quota_up_to_its_share(self) -> None:
        assert self.found(6, 2) == [Reclaim("mine", "busy", 2 * GPU, by_share=True)]

    def test_both_rules_where_the_share_allows_more(self) -> None:
        assert self.found(7, 1) == [Reclaim("mine", "busy", GPU), Reclaim("mine", "busy", 3 * GPU, by_share=True)]

    def test_nothing_by_share_from_who_is_within_it_or_never_evicted_or_beyond_a_limit(self) -> None:
        assert self.found(4, 2) == []
        assert self.found(6, 2, fixed=6) == []
        assert self.found(6, 2, limit=2) == []

    @pytest.mark.parametrize(("mine", "reclaims"), [(2, True), (3, True), (4, False)])
    def test_the_rules_of_kai_agree(self, mine: int, reclaims: bool) -> None:
        node = SnapshotNode("node", "default", Resources.of(gpu=8, cpu=64, memory="512Gi"))
        running = [gang(f"busy-{at}", queue="busy", nodes=("node",), preemptible=True) for at in range(8 - mine)]
        running += [gang(f"mine-{at}", queue="mine", nodes=("node",), preemptible=True) for at in range(mine)]
        waiting = [gang(f"more-{at}", queue="busy", preemptible=True) for at in range(8)]
        snapshot = Snapshot(nodes=(node,), queues=self.ROWS, groups=(*running, *waiting))
        outcome = preview(snapshot, gang("new", queue="mine", preemptible=True), flavour=Flavour.KAI)
        assert (outcome.kind is OutcomeKind.RECLAIMS) is reclaims, outcome
        assert bool(self.found(8 - mine, mine)) is reclaims
