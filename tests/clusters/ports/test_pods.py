"""What a pod's manifest says about amounts, times and its standing."""

from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.ports.pods import (
    amounts,
    condition_is_true,
    moment_of,
    more_requests,
    preemptibility_of,
    requests_of,
    stamp,
)
from scheduling.model.preemptibility import Preemptibility
from scheduling.model.resources import Resources


def pod(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    metadata = {"annotations": more.pop("annotations", {}), "labels": more.pop("labels", {})}
    return {"metadata": metadata, "spec": {"containers": list(containers), **more}}


def asking(requests: dict[str, str] | None = None, **limits: str) -> dict[str, Any]:
    return {"resources": {"requests": requests or {}, "limits": limits}}


GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("manifest", "wanted"),
    [
        pytest.param(pod(), Resources(), id="nothing asked"),
        pytest.param(pod({"name": "bare"}), Resources(), id="no resources at all"),
        pytest.param(pod(asking({GPU: "2", "cpu": "500m", "memory": "1Gi"})), Resources.of(2, "500m", "1Gi"), id="all"),
        pytest.param(pod(asking(cpu="2")), Resources.of(cpu=2), id="a limit stands in for a request"),
        pytest.param(pod(asking({"cpu": "1"}, cpu="2")), Resources.of(cpu=1), id="a request beats a limit"),
        pytest.param(pod(asking({"cpu": "1"}), asking({"cpu": "2"})), Resources.of(cpu=3), id="containers add up"),
        pytest.param(
            pod(asking({"cpu": "1", GPU: "1"}), initContainers=[asking({"cpu": "4"})]),
            Resources.of(gpu=1, cpu=4),
            id="the largest init container counts per dimension",
        ),
        pytest.param(pod(asking(), annotations={"gpu-fraction": "0.5"}), Resources(gpu=500), id="a part of a device"),
        pytest.param(
            pod(asking(), annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}),
            Resources(gpu=1000),
            id="a part of each of two devices",
        ),
        pytest.param(
            pod(asking(), annotations={"gpu-memory": "4000"}, labels={"runai-gpu-group": "a"}),
            Resources(gpu=1000),
            id="a part by memory, of which a pod does not say how large it is",
        ),
        pytest.param(
            pod(asking({GPU: "1", "cpu": "1"}), labels={"runai-gpu-group": "a"}),
            Resources.of(cpu=1),
            id="what holds a device for those that share it",
        ),
        pytest.param(
            pod(asking({"cpu": "1"}), initContainers=[{**asking({"cpu": "1", GPU: "1"}), "restartPolicy": "Always"}]),
            Resources.of(gpu=1, cpu=2),
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            pod(
                asking({"cpu": "1"}),
                initContainers=[{**asking({"cpu": "2"}), "restartPolicy": "Always"}, asking({"cpu": "3"})],
            ),
            Resources.of(cpu=5),
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            pod(asking({"cpu": "1", GPU: "1"}), resources={"requests": {"cpu": "4"}, "limits": {"memory": "1Gi"}}),
            Resources.of(1, 4, "1Gi"),
            id="what the pod as a whole asks for",
        ),
        pytest.param(
            pod(asking({"cpu": "1"}), overhead={"cpu": "250m", "memory": "1Gi"}),
            Resources.of(cpu="1250m", memory="1Gi"),
            id="the overhead of its runtime class",
        ),
        pytest.param(pod(asking({"amd.com/gpu": "2"})), Resources(gpu=2000), id="GPUs of another vendor"),
        pytest.param(pod(asking({"nvidia.com/gpu.shared": "1"})), Resources(gpu=1000), id="a replica of a shared GPU"),
        pytest.param(pod(asking({"nvidia.com/mig-3g.40gb": "2"})), Resources(gpu=6000), id="MIG slices"),
        pytest.param(pod(asking({"nvidia.com/mig-odd": "1"})), Resources(gpu=1000), id="an unknown slice is one"),
        pytest.param(pod(asking({"cpu": "many"})), Resources(), id="an unreadable quantity is nothing"),
        pytest.param(pod(asking({"cpu": "0.1m"})), Resources(cpu=1), id="rounded up as the API server does"),
    ],
)
def test_requests_are_what_the_scheduler_counts(manifest: dict[str, Any], wanted: Resources) -> None:
    assert requests_of(manifest) == wanted


STORAGE = "ephemeral-storage"


@pytest.mark.parametrize(
    ("manifest", "wanted"),
    [
        pytest.param(
            pod(asking({STORAGE: "2", GPU: "1"}), asking({STORAGE: "3"})), {STORAGE: 5}, id="containers add up"
        ),
        pytest.param(
            pod(asking({STORAGE: "2"}), initContainers=[asking({STORAGE: "9"}), asking({STORAGE: "4"})]),
            {STORAGE: 9},
            id="the largest init container counts",
        ),
        pytest.param(
            pod(asking({STORAGE: "2"}), initContainers=[{**asking({STORAGE: "9"}), "restartPolicy": "Always"}]),
            {STORAGE: 11},
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            pod(
                asking({STORAGE: "2"}),
                initContainers=[{**asking({STORAGE: "4"}), "restartPolicy": "Always"}, asking({STORAGE: "9"})],
            ),
            {STORAGE: 13},
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            pod(asking({STORAGE: "2"}), overhead={STORAGE: "5"}), {STORAGE: 7}, id="the overhead of its runtime class"
        ),
        pytest.param(
            pod(asking({"nvidia.com/mig-1g.5gb": "1"}), resourceClaims=[{"name": "a"}]),
            {"nvidia.com/mig-1g.5gb": 1, "resource-claims": 1},
            id="slices, and claims of devices",
        ),
    ],
)
def test_what_is_counted_beside_amounts_follows_the_same_rule(manifest: dict[str, Any], wanted: dict[str, int]) -> None:
    assert more_requests(manifest) == wanted


def test_amounts_of_a_node() -> None:
    assert amounts({GPU: "8", "cpu": "96", "memory": "2Ti", "pods": "110"}) == Resources.of(8, 96, "2Ti")


@pytest.mark.parametrize(
    ("label", "priority", "wanted"),
    [
        ("preemptible", 150, Preemptibility.PREEMPTIBLE),
        ("semi-preemptible", 150, Preemptibility.NON_PREEMPTIBLE),
        ("semi-preemptible", 50, Preemptibility.PREEMPTIBLE),
        ("non-preemptible", 25, Preemptibility.NON_PREEMPTIBLE),
        ("", 99, Preemptibility.PREEMPTIBLE),
        ("", 100, Preemptibility.NON_PREEMPTIBLE),
        ("maybe", 100, Preemptibility.NON_PREEMPTIBLE),
    ],
)
def test_preemptibility_is_a_label_that_schedulers_support_else_the_threshold(
    label: str, priority: int, wanted: Preemptibility
) -> None:
    assert preemptibility_of(pod(labels={"kai.scheduler/preemptibility": label}, priority=priority)) is wanted


@pytest.mark.parametrize("text", [None, "", "yesterday", 5])
def test_a_timestamp_that_cannot_be_read_is_none(text: object) -> None:
    assert moment_of(text) is None


def test_a_timestamp_survives_being_written() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert stamp(moment) == "2026-01-02T03:04:05.678901Z"
    assert moment_of(stamp(moment)) == moment
    assert moment_of("2026-01-02T03:04:05") == moment.replace(microsecond=0)


def test_a_condition_holds_only_when_it_is_true() -> None:
    manifest = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    assert not condition_is_true(manifest, "Ready")
    assert not condition_is_true({}, "Ready")
