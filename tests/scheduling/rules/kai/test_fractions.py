"""Parts of a GPU live on whole devices: what two devices have left together is no room for a part."""

import pytest

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import OutcomeKind
from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode

NODE = SnapshotNode("a", "default", Resources.of(2, 64, "1Ti"))
QUEUES = (Queue("research"), Queue("team", parent="research"))


def part(name: str, milli: int, pods: int = 1, **more: object) -> PodGroup:
    members = tuple(Pod(f"{name}-{number}", Resources(gpu=milli), **more) for number in range(pods))  # type: ignore[arg-type]
    started = 1 if more else None
    return PodGroup(name, "team", "team", 50, preemptible=True, pods=members, min_member=pods, started=started)


@pytest.mark.parametrize(("milli", "pods", "kind"), [
    (600, 2, OutcomeKind.PLACED),
    (600, 3, OutcomeKind.PENDING),
    (500, 4, OutcomeKind.PLACED),
    (400, 5, OutcomeKind.PENDING),
])  # fmt: skip
def test_a_gang_of_parts_needs_devices_that_hold_each(milli: int, pods: int, kind: OutcomeKind) -> None:
    snapshot = Snapshot(nodes=(NODE,), queues=QUEUES)
    assert preview(snapshot, part("asked", milli, pods), flavour="kai").kind is kind


def test_what_two_shared_devices_have_left_is_no_room_for_a_part() -> None:
    running = [part(name, 600, node="a", device=name) for name in ("x", "y")]
    snapshot = Snapshot(nodes=(NODE,), queues=QUEUES, groups=tuple(running))
    assert preview(snapshot, part("asked", 600), flavour="kai").kind is OutcomeKind.PENDING
    assert preview(snapshot, part("asked", 400), flavour="kai").kind is OutcomeKind.PLACED
