"""Taints on the sandbox: they keep pods away that do not bear them, and the pods say so."""

from typing import Any

import pytest

from tests.clusters.sandboxes import Sandbox, bare_pod, furnished

pytestmark = pytest.mark.django_db

DEDICATED = {"key": "dedicated", "value": "vision"}


def tainted(flavour: str, effect: str) -> Sandbox:
    """One node with room, for those only who bear its taint."""
    sandbox = furnished(flavour)
    node = sandbox.node("node-1")
    sandbox.gateway.update({**node, "spec": {"taints": [{**DEDICATED, "effect": effect}]}}, observed=node)
    sandbox.remove_node("node-0")
    return sandbox


def waiting(name: str, **more: Any) -> Any:
    pod = bare_pod(name)
    return {**pod, "spec": {**pod["spec"], **more}}


@pytest.mark.parametrize("flavour", ["kube", "kai"])
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_only_a_pod_that_bears_it_gets_a_node(flavour: str, effect: str) -> None:
    sandbox = tainted(flavour, effect)
    sandbox.create(waiting("stays-out"))
    sandbox.create(waiting("bears-it", tolerations=[{**DEDICATED, "operator": "Equal", "effect": effect}]))
    sandbox.ticks(2)
    assert {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in sandbox.pods()} == {
        "stays-out": None,
        "bears-it": "node-1",
    }


def test_who_is_kept_away_says_by_what() -> None:
    sandbox = tainted("kube", "NoSchedule")
    sandbox.create(waiting("stays-out"))
    sandbox.tick()
    assert any("0/1 nodes are available: 1 node(s) had untolerated taint(s)" in each for each in said(sandbox))


def test_a_mere_preference_keeps_nobody_away() -> None:
    sandbox = tainted("kube", "PreferNoSchedule")
    sandbox.create(waiting("comes"))
    sandbox.ticks(2)
    assert sandbox.phases() == ["Running"]


def said(sandbox: Sandbox) -> list[str]:
    return sandbox.events("FailedScheduling")
