"""What Kueue is asked: places that become events, a door that is shut and opens."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.connection.rules.rights import required_access
from clusters.flavours.kueue_status import POSITION_IN_QUEUE, QUEUE_POSITION, VISIBILITY_API
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.gateway import (
    ClusterBusy,
    ClusterError,
    ClusterRefused,
    ClusterUnreachable,
    Invalid,
    Manifest,
    NotAuthorized,
    ObjectRef,
)
from clusters.watch.models import ClusterEvent, ObservedObject
from clusters.watch.services import observations
from clusters.watch.services.visibility_poller import (
    CLUSTER,
    JOBS_ACCEPTED,
    MOST_QUEUES,
    VisibilityResult,
    job_rejection_of,
    query_visibility,
    store_visibility,
    visibility_queries,
)
from tests.clusters.observation_recorder import ObservationRecorder
from tests.factories.clusters import build_cluster

SPACE, QUEUE = "runai-vision", "project.1.h100"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SHUT = 'Internal error occurred: failed calling webhook "mjob.kb.io": failed to call webhook: connection refused'


def waiting(uid: str, *, position: int = 0, **more: Any) -> Manifest:
    owner = {"kind": "Job", "name": f"job-{uid}", "uid": uid, "controller": True}
    metadata = {"name": f"wl-{uid}", "namespace": SPACE, "ownerReferences": [owner]}
    return {"metadata": metadata, "localQueueName": QUEUE, "positionInLocalQueue": position, **more}


def told(items: object) -> list[str]:
    return [event["message"] for event in VISIBILITY_API.tell({"items": items})]


class Asked:
    """A cluster that answers as it is told to."""

    def __init__(self, *items: Manifest, trial: ClusterError | None = None, part: ClusterError | None = None) -> None:
        self.items, self.trial, self.refusal = items, trial, part
        self.requested: list[ObjectRef] = []

    def part(self, ref: ObjectRef, name: str) -> Manifest | None:
        assert name == "pendingworkloads"
        self.requested.append(ref)
        if self.refusal:
            raise self.refusal
        return {"items": list(self.items)}

    def try_create(self, _manifest: Manifest) -> None:
        if self.trial:
            raise self.trial


def test_the_order_of_the_answer_is_the_place() -> None:
    assert told([waiting("a"), waiting("b")]) == [f"1 of 2 in queue {QUEUE}", f"2 of 2 in queue {QUEUE}"]
    first, _second = VISIBILITY_API.tell({"items": [waiting("a"), waiting("b")]})
    assert (first["reason"], first["involvedObject"]["uid"], first["involvedObject"]["namespace"]) == (
        QUEUE_POSITION,
        "a",
        SPACE,
    )
    assert POSITION_IN_QUEUE.match(first["message"])


@pytest.mark.parametrize(
    "items",
    [None, "many", [None, 7], [{"metadata": None}], [{"metadata": {"ownerReferences": "x"}}], [{"metadata": {}}]],
)
def test_t_an_answer_of_another_shape_tells_nothing(items: object) -> None:
    assert told(items) == []


def test_the_right_to_ask_is_for_nothing_else() -> None:
    requested = [each for each in required_access("kueue") if each.group == "visibility.kueue.x-k8s.io"]
    assert [(each.path, each.verbs) for each in requested] == [("localqueues/pendingworkloads", ("get",))]
    assert not [each for each in required_access("kube") if each.subresource == "pendingworkloads"]


@pytest.mark.django_db
class TestKeeping:
    """What was answered, in the database."""

    @pytest.fixture
    def cluster(self) -> Cluster:
        return build_cluster(flavour="kueue", backend="memory")

    def queue(self, cluster: Cluster, name: str = QUEUE, space: str = SPACE) -> None:
        kind = "LocalQueue.kueue.x-k8s.io"
        ObservedObject.objects.create(cluster=cluster, kind=kind, uid=f"{space}-{name}", namespace=space, name=name)

    def job(self, cluster: Cluster, uid: str, *, space: str = SPACE, reason: str = "Queued") -> None:
        row = {"cluster": cluster, "namespace": space, "kind": "Job.batch", "name": uid, "owner_id": f"owner-{uid}"}
        ObservedObject.objects.create(uid=uid, **row)
        ClusterEvent.objects.create(uid=f"{uid}.queue", object_uid=uid, reason=reason, at=NOON, **row)

    def places(self, cluster: Cluster) -> dict[str, str]:
        return dict(
            ClusterEvent.objects.filter(cluster=cluster, reason=QUEUE_POSITION).values_list("owner_id", "message")
        )

    def test_only_queues_in_which_something_waits_are_asked_about(self, cluster: Cluster) -> None:
        self.queue(cluster)
        self.queue(cluster, "project.2.h100", "runai-other")
        assert visibility_queries(cluster).queues == ()
        self.job(cluster, "a", reason="Admitted")
        assert visibility_queries(cluster).queues == ()
        self.job(cluster, "b")
        assert [(ref.namespace, ref.name) for ref in visibility_queries(cluster).queues] == [(SPACE, QUEUE)]

    def test_more_queues_than_one_round_takes_have_their_turns(self, cluster: Cluster) -> None:
        for number in range(MOST_QUEUES + 10):
            self.queue(cluster, f"q{number:03}")
        self.job(cluster, "a")
        rounds = [{ref.name for ref in visibility_queries(cluster, turn=turn).queues} for turn in (0, 1)]
        assert [len(each) for each in rounds] == [MOST_QUEUES, MOST_QUEUES]
        assert len(rounds[0] | rounds[1]) == MOST_QUEUES + 10

    def test_a_place_is_written_again_when_it_has_changed(self, cluster: Cluster) -> None:
        self.job(cluster, "a")
        for place, seconds in ((2, 0), (1, 1)):
            before = [waiting("stranger")] * (place - 1)
            events = list(VISIBILITY_API.tell({"items": [*before, waiting("a")]}))
            store_visibility(cluster, VisibilityResult(events), at=NOON + timedelta(seconds=seconds))
            assert self.places(cluster) == {"owner-a": f"{place} of {place} in queue {QUEUE}"}
        assert ClusterEvent.objects.filter(reason=QUEUE_POSITION).count() == 1, "no row for a stranger's job"

    def test_what_may_not_be_asked_leaves_everything_as_it_is(self, cluster: Cluster) -> None:
        self.queue(cluster)
        self.job(cluster, "a")
        gateway = Asked(part=NotAuthorized("may not"), trial=NotAuthorized("may not"))
        answered = query_visibility(cluster, gateway, visibility_queries(cluster))
        assert gateway.requested
        assert (list(answered.places), answered.shut) == ([], None)

    @pytest.mark.parametrize(
        ("trial", "shut"),
        [
            pytest.param(None, "", id="made on trial"),
            pytest.param(ClusterBusy(SHUT), SHUT, id="nobody answers for the webhook"),
            pytest.param(ClusterBusy("etcd is slow"), None, id="busy for another reason"),
            pytest.param(ClusterUnreachable("no route"), None, id="unreachable"),
            pytest.param(ClusterRefused("namespaces not found"), None, id="refused before anybody was asked"),
            pytest.param(
                Invalid('admission webhook "vjob.kb.io" denied the request: no'), "", id="the webhook says no"
            ),
        ],
    )
    def test_only_a_silent_webhook_shuts_the_door(
        self, cluster: Cluster, trial: ClusterError | None, shut: str | None
    ) -> None:
        self.queue(cluster)
        assert query_visibility(cluster, Asked(trial=trial), visibility_queries(cluster)).shut == shut

    def test_a_shut_door_stands_since_its_first_moment_until_it_opens_and_then_listeners_know(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        listener = ObservationRecorder()
        monkeypatch.setattr(observations, "_handlers", [listener])
        for minutes in (0, 5):
            store_visibility(cluster, VisibilityResult(shut=SHUT), at=NOON + timedelta(minutes=minutes))
        door = job_rejection_of(cluster)
        assert door is not None
        assert (door.at, door.count, door.owner_id) == (NOON, 2, CLUSTER)
        store_visibility(cluster, VisibilityResult(shut=None), at=NOON)
        assert job_rejection_of(cluster) is not None, "not known is no news"
        store_visibility(cluster, VisibilityResult(shut=""), at=NOON)
        store_visibility(cluster, VisibilityResult(shut=""), at=NOON)
        assert job_rejection_of(cluster) is None
        assert [[event.reason for event in each.events] for each in listener.observations] == [[JOBS_ACCEPTED]]

    def test_other_schedulers_are_asked_nothing(self) -> None:
        cluster = build_cluster(flavour="kube", backend="memory")
        assert flavour_for("kube").traits.inquiries is None
        assert visibility_queries(cluster).trial is None
