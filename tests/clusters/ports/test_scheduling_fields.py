"""What decides about the scheduling of an object's pods is read from it, whoever wrote the object."""

from typing import Any

import pytest

from clusters.flavours.registry import flavour_for
from clusters.ports.pod_templates import scheduling_fields
from clusters.ports.workload_kinds import kind_named
from tests.clusters.samples import sample
from tests.clusters.specs import job

JOB = kind_named("Job")


def fields(manifest: Any) -> dict[str, str | bool]:
    return scheduling_fields(manifest, JOB)


def test_queue_priority_scheduler_and_suspend_of_what_rung_writes() -> None:
    (manifest,) = flavour_for("kai").render(job(sample(JOB)))
    found = fields(manifest)
    assert found["/metadata/labels/kai.scheduler~1queue"] == manifest["metadata"]["labels"]["kai.scheduler/queue"]
    assert found["/spec/template/spec/schedulerName"] == "kai-scheduler"
    assert found["/spec/template/spec/priorityClassName"] == "low"
    assert found["/spec/suspend"] is False


def test_the_api_servers_own_default_counts_as_absent() -> None:
    pod = {"schedulerName": "default-scheduler", "restartPolicy": "Never"}
    assert fields({"spec": {"template": {"spec": pod}}}) == {}


@pytest.mark.parametrize(
    "manifest",
    [
        {"metadata": None, "spec": None},
        {"metadata": {"labels": ["kai.scheduler/queue"]}, "spec": {"template": []}},
        {"metadata": {"labels": {"kai.scheduler/queue": {"a": 1}}}, "spec": {"template": {"spec": "x", "metadata": 3}}},
        {"metadata": {"labels": {"kai.scheduler/queue": "x" * 300}}, "spec": {"suspend": "\x1b[2J"}},
    ],
)
def test_what_is_of_another_shape_says_nothing(manifest: Any) -> None:
    assert fields(manifest) == {}
