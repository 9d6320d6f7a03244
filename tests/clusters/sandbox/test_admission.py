"""What the sandbox's API server refuses, and how the refusal is read back."""

import pytest

from clusters.flavours.registry import flavour_for
from clusters.ports.gateway import ClusterRefused, Manifest, ObjectConflict, ObjectRef, VersionConflict
from clusters.ports.objects import EVENT, POD, PRIORITY_CLASS
from tests.clusters.sandboxes import TEAM, Sandbox, bare_pod, furnished, job, priority_class

pytestmark = pytest.mark.django_db


def test_an_unknown_priority_class_refuses_the_pod() -> None:
    with pytest.raises(ClusterRefused, match="no PriorityClass with name urgent was found"):
        furnished().create(bare_pod("train", priority="urgent"))


def test_a_pod_copies_the_integer_of_its_class_and_keeps_it() -> None:
    sandbox = furnished()
    created = sandbox.create(bare_pod("train", priority="low"))
    sandbox.gateway.delete(ObjectRef(PRIORITY_CLASS, "low"))
    sandbox.create(priority_class("low", 45))
    kept = sandbox.get(created)
    assert kept is not None
    assert kept["spec"]["priority"] == 40
    assert sandbox.create(bare_pod("newer", priority="low"))["spec"]["priority"] == 45


def test_without_a_class_the_lowest_global_default_counts_else_zero() -> None:
    sandbox = furnished()
    nameless = bare_pod("nameless", priority="")
    assert sandbox.create(nameless)["spec"]["priority"] == 0
    sandbox.create(priority_class("big", 900, globalDefault=True))
    sandbox.create(priority_class("small", 7, globalDefault=True))
    assert sandbox.create(bare_pod("later", priority=""))["spec"]["priority"] == 7


@pytest.mark.parametrize(("part", "value"), [("value", 41), ("preemptionPolicy", "Never")])
def test_value_and_policy_of_a_class_are_immutable(part: str, value: object) -> None:
    sandbox = furnished()
    observed = sandbox.gateway.get(ObjectRef(PRIORITY_CLASS, "low"))
    assert observed is not None
    with pytest.raises(ClusterRefused, match=f"{part}: field is immutable"):
        sandbox.gateway.update({**priority_class("low", 40), part: value}, observed=observed)


def test_a_class_keeps_its_value_when_its_description_changes() -> None:
    sandbox = furnished()
    observed = sandbox.gateway.get(ObjectRef(PRIORITY_CLASS, "low"))
    assert observed is not None
    updated = sandbox.gateway.update(priority_class("low", 40, description="For nights."), observed=observed)
    assert (updated["description"], updated["metadata"]["uid"]) == ("For nights.", observed["metadata"]["uid"])


@pytest.mark.parametrize(("name", "value"), [("system-mine", 10), ("huge", 1_000_000_001)])
def test_reserved_names_and_values_are_refused(name: str, value: int) -> None:
    with pytest.raises(ClusterRefused, match="Forbidden"):
        furnished().create(priority_class(name, value))


def test_a_stale_write_has_to_read_again() -> None:
    sandbox = furnished()
    created = sandbox.create(job("train"))
    sandbox.tick()
    with pytest.raises(VersionConflict, match="the object has been modified"):
        sandbox.gateway.update(job("train"), observed=created)


def test_a_taken_name_is_a_conflict() -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    with pytest.raises(ObjectConflict, match="already exists"):
        sandbox.create(job("train"))


@pytest.mark.parametrize("namespace", ["", "nowhere"])
def test_an_object_needs_a_namespace_that_exists(namespace: str) -> None:
    with pytest.raises(ClusterRefused, match="namespace"):
        furnished().create(job("train", namespace=namespace))


def test_a_kind_that_is_not_served_is_refused() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": TEAM}}
    with pytest.raises(ClusterRefused, match="no matches for kind"):
        furnished().create(secret)


def refusals(sandbox: Sandbox) -> list[Manifest]:
    found = sandbox.gateway.list(EVENT, managed_only=False)[0]
    return [event for event in found if event["reason"] == "FailedCreate"]


def test_a_quota_refuses_pods_beyond_it_and_says_the_numbers() -> None:
    sandbox = furnished("kube")
    sandbox.quota("rung-limit", gpus="4")
    sandbox.create(job("runs", gpus=3))
    sandbox.create(job("refused", gpus=2))
    sandbox.ticks(3)
    assert sandbox.phases("runs") == ["Running"]
    assert sandbox.pods("refused") == []
    [event] = refusals(sandbox)
    assert event["involvedObject"]["name"] == "refused"
    reading = flavour_for("kube").interpret({}, [event])
    assert reading.reason == "OverLimit"
    assert reading.numbers == {
        "quota": "rung-limit",
        "requested": "requests.nvidia.com/gpu=2",
        "used": "requests.nvidia.com/gpu=3",
        "limited": "requests.nvidia.com/gpu=4",
    }


def test_a_freed_quota_is_taken() -> None:
    sandbox = furnished("kube")
    sandbox.quota("rung-limit", gpus="4")
    first = sandbox.create(job("first", gpus=4))
    sandbox.create(job("second", gpus=4))
    sandbox.ticks(2)
    sandbox.delete(first)
    sandbox.ticks(3, after=31)
    assert sandbox.phases("second") == ["Running"]


def test_a_scoped_quota_counts_only_the_classes_it_names() -> None:
    sandbox = furnished("kube")
    sandbox.quota("rung-deserved", gpus="2", classes=("high", "very-high"))
    sandbox.create(bare_pod("low", gpus=4, priority="low"))
    sandbox.create(bare_pod("high", gpus=2, priority="high"))
    with pytest.raises(ClusterRefused, match="exceeded quota: rung-deserved, requested: "):
        sandbox.create(bare_pod("higher", gpus=1, priority="very-high"))


def test_ended_pods_give_their_quota_back() -> None:
    sandbox = furnished("kube")
    sandbox.quota("rung-limit", gpus="4")
    sandbox.create(bare_pod("short", gpus=4, seconds="5"))
    sandbox.ticks(3, after=5)
    sandbox.create(bare_pod("next", gpus=4))
    assert len(sandbox.gateway.list(POD, managed_only=False)[0]) == 2


def test_a_limit_range_fills_in_what_containers_do_not_state() -> None:
    sandbox = furnished("kube")
    spec = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}, "default": {"memory": "8Gi"}}]}
    metadata = {"name": "rung-defaults", "namespace": TEAM}
    sandbox.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": spec})
    created = sandbox.create(bare_pod("train", gpus=1))
    assert created["spec"]["containers"][0]["resources"] == {
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "1"},
        "requests": {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"},
    }


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
def test_the_built_in_classes_are_there(name: str) -> None:
    assert furnished().create(bare_pod("agent", priority=name))["spec"]["priority"] >= 2_000_000_000


def quota_on(sandbox: Sandbox, operator: str, *values: str, **hard: str) -> None:
    expression = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
    spec = {"hard": hard, "scopeSelector": {"matchExpressions": [expression]}}
    metadata = {"name": "scoped", "namespace": TEAM}
    sandbox.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    ("operator", "values", "refused"),
    [
        ("In", ["low"], True),
        ("In", ["high"], False),
        ("NotIn", ["low"], False),
        ("NotIn", ["high"], True),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Sometimes", [], False),
    ],
)
def test_a_scope_selects_by_class(operator: str, values: list[str], *, refused: bool) -> None:
    sandbox = furnished("kube")
    quota_on(sandbox, operator, *values, pods="0")
    if refused:
        with pytest.raises(ClusterRefused, match="requested: pods=1, used: pods=0, limited: pods=0"):
            sandbox.create(bare_pod("train"))
    else:
        sandbox.create(bare_pod("train"))


def test_memory_is_counted_in_bytes_and_unknown_keys_are_not() -> None:
    sandbox = furnished("kube")
    hard = {"requests.memory": "1Gi", "services": "0"}
    metadata = {"name": "small", "namespace": TEAM}
    sandbox.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}})
    pod = bare_pod("train")
    pod["spec"]["containers"][0]["resources"]["requests"] = {"memory": "2Gi"}
    with pytest.raises(ClusterRefused, match=r"requested: requests\.memory=2147483648, used: requests\.memory=0"):
        sandbox.create(pod)


def test_a_limit_range_of_another_namespace_or_type_changes_nothing() -> None:
    sandbox = furnished("kube")
    sandbox.namespace("runai-other")
    for namespace, kind in (("runai-other", "Container"), (TEAM, "Pod")):
        spec = {"limits": [{"type": kind, "default": {"cpu": "9"}}]}
        metadata = {"name": "defaults", "namespace": namespace}
        sandbox.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": spec})
    created = sandbox.create(bare_pod("train"))
    assert "cpu" not in created["spec"]["containers"][0]["resources"]["limits"]


def test_what_is_not_there_cannot_be_updated() -> None:
    sandbox = furnished()
    observed = sandbox.create(job("train"))
    sandbox.delete(observed)
    with pytest.raises(ClusterRefused, match="not found"):
        sandbox.gateway.update(job("train"), observed=observed)


def test_an_object_without_a_name_is_refused() -> None:
    nameless = priority_class("", 5)
    with pytest.raises(ClusterRefused, match="name"):
        furnished().create(nameless)
