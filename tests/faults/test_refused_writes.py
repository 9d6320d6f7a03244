"""F11, F19, F22: conflicts, applies that end half-way, edits while a sync is under way."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from clusters.ports.gateway import ObjectRef
from clusters.ports.objects import MANAGED_BY, NAMESPACE, RESOURCE_QUOTA, generation_of
from clusters.sync.models import SyncRun, SyncState
from tests.faults.invariants import grants_are_as_wanted
from tests.faults.rig import SEEDS, Rig
from tests.support.faults import Slow, Status

pytestmark = pytest.mark.parametrize("seed", SEEDS)
CONFLICT = Status(409, "Conflict", message="the object has been modified; please apply your changes to the latest")


def test_f11_a_conflict_is_read_again_and_foreign_fields_stay(rig: Rig) -> None:
    projects = rig.projects(3)
    rig.reconcile()
    for project in projects:
        ref = ObjectRef(RESOURCE_QUOTA, "rung-deserved", project.namespace)
        foreign = {"annotations": {"somebody.example/note": "mine"}, "labels": {"somebody.example/team": "a"}}
        rig.admin.patch(ref, {"metadata": foreign})
        rig.grant(project)
    refused = rig.proxy.breaks(CONFLICT, method="PUT|POST", path="resourcequotas", every=2)
    rig.attempt()
    assert refused.hits
    rig.settle()
    for project in projects:
        found = rig.admin.must(ObjectRef(RESOURCE_QUOTA, "rung-deserved", project.namespace))["metadata"]
        assert found["annotations"]["somebody.example/note"] == "mine"
        assert found["labels"]["somebody.example/team"] == "a"


def test_f11_a_foreign_namespace_with_a_wanted_name_is_shown_and_left_alone(rig: Rig) -> None:
    project = rig.projects(1)[0]
    rig.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": project.namespace}})
    said = rig.attempt()
    assert isinstance(said, SyncRun)
    assert project.namespace in rig.conflicts()
    assert rig.quotas(project.namespace) == []
    ref = ObjectRef(NAMESPACE, project.namespace)
    assert MANAGED_BY not in rig.admin.must(ref)["metadata"]["labels"]
    rig.admin.delete(ref)
    rig.admin.wait_gone(ref, seconds=40)


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (422, "Invalid")])
def test_f19_what_was_refused_is_named_and_tried_again_alone(rig: Rig, code: int, reason: str) -> None:
    rig.projects(3)
    refused = rig.proxy.breaks(Status(code, reason), method="POST|PUT", path="resourcequotas", every=3)
    said = rig.attempt()
    assert isinstance(said, SyncRun)
    assert said.state == SyncState.PARTIAL
    wrong = said.outcomes.filter(ok=False)
    assert refused.hits == wrong.count() > 0
    assert said.written == said.outcomes.filter(ok=True).count() > 0
    rig.proxy.heal()
    before = len(rig.proxy.writes())
    rig.settle()
    own = [each for each in rig.proxy.writes()[before:] if rig.mark in each.path]
    names = {f"{outcome.namespace}/{outcome.name}" for outcome in wrong}
    bodies = [each.manifest["metadata"] for each in own]
    assert {f"{each.get('namespace', '')}/{each['name']}" for each in bodies} == names
    assert {each.method for each in own} == {"POST"}


@pytest.mark.postgres
def test_f22_edits_during_a_sync_end_with_the_last_everywhere(rig: Rig) -> None:
    projects = rig.projects(12)
    rig.proxy.breaks(Slow(0.05, least=0.01), method="POST|PUT")
    stop = threading.Event()

    def sync() -> None:
        try:
            while not stop.is_set():
                rig.attempt()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        syncing = pool.submit(sync)
        try:
            for _ in range(30):
                rig.grant(rig.random.choice(projects))
        finally:
            stop.set()
        syncing.result()
    rig.settle()
    grants_are_as_wanted(rig)
    for project in projects:  # an object that a later generation wants just as it is keeps the one it was written by
        project.refresh_from_db()
        assert max(generation_of(each) for each in rig.quotas(project.namespace)) <= project.generation
