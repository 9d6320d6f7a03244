"""Scenarios of gangs on a real control plane with `--gang`, and what its scheduler did at the first attempt."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from clusters.ports.gateway import Manifest
from tests.real.scenarios import objects
from tests.real.scenarios.gangs import GangPlan, GangScenario
from tests.real.scenarios.plain import NAMESPACES, Kind, Scenario
from tests.real.scenarios.stage import SELECTOR, SPACES, Stage

API: Final = "scheduling.k8s.io/v1alpha2"
QUIET: Final = 2.0  # seconds: pods beyond the minimum are looked at once more after a second


@dataclass(frozen=True, slots=True)
class GangVerdict:
    """What becomes of the newcomer, who goes for it, and how many of its pods have a node."""

    kind: Kind
    victims: frozenset[str] = field(default=frozenset())
    started: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {sorted(self.victims)}, {self.started} started"


class GangStage(Stage):
    """Victims end long after everything is read, so that no attempt but the first has room to play with."""

    quiet = QUIET

    def furnish(self, scenarios: Sequence[Scenario]) -> None:
        """The gangs that run, then all the rest."""
        for manifest in objects.shared_objects():
            self._create_shared(manifest)
        self._each(
            [(each, gang) for each in scenarios if isinstance(each, GangScenario) for gang in each.gangs], self._group
        )
        super().furnish(scenarios)

    def clear(self) -> None:
        """Take every scenario down again, its groups as well."""
        super().clear()
        for space in NAMESPACES:
            for plural in ("podgroups", "workloads"):
                self._admin.call("DELETE", f"{_home(space)}/{plural}{SELECTOR}")

    def come(self, scenarios: Sequence[GangScenario]) -> dict[int, GangVerdict]:
        """Let the newcomers come: pods first, so that a gang's first attempt sees all of them."""
        coming = [(each, pod) for each in scenarios for pod in each.coming]
        self._each(coming, lambda item: self._create_pod(*item))
        self._each([(each, each.newcomer) for each in scenarios if each.newcomer], self._group)
        pods = self._settled({_name(each, pod.name) for each, pod in coming})
        victims, nodes = self._victims(pods), {}
        uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
        for pod in pods:
            nodes[pod["metadata"]["name"]] = pod["spec"].get("nodeName")
        groups = self._admin.call("GET", f"/apis/{API}/podgroups{SELECTOR}")["items"]
        uids |= {group["metadata"]["name"]: group["metadata"]["uid"] for group in groups}
        found = {}
        for each in scenarios:
            uid = uids[_name(each, each.newcomer.name if each.newcomer else each.coming[0].name)]
            started = sum(nodes[_name(each, pod.name)] is not None for pod in each.coming)
            found[each.seed] = _verdict({name.rpartition("-")[2] for name in victims.get(uid, ())}, started)
        return found

    def _group(self, item: tuple[GangScenario, GangPlan]) -> None:
        for plural, manifest in group_objects(*item):
            self._admin.call("POST", f"{_home(item[1].namespace)}/{plural}", manifest)


def group_objects(scenario: GangScenario, plan: GangPlan) -> list[tuple[str, Manifest]]:
    """The Workload and the PodGroup of a gang, with their plural names."""
    template: Manifest = {
        "schedulingPolicy": {"gang": {"minCount": plan.minimum}},
        "priorityClassName": objects.class_name(plan.value, never=plan.never),
    }
    template |= {"disruptionMode": plan.mode} if plan.mode else {}
    template |= {"schedulingConstraints": {"topology": [{"key": objects.RACK}]}} if plan.racked else {}
    name = _name(scenario, plan.name)
    metadata = {"name": name, "labels": {objects.MARK: str(scenario.seed)}}
    reference = {"workload": {"workloadName": name, "podGroupTemplateName": "pods"}}
    specs = {
        "Workload": {"podGroupTemplates": [{"name": "pods", **template}]},
        "PodGroup": {"podGroupTemplateRef": reference, **template},
    }
    return [
        (f"{kind.lower()}s", {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec})
        for kind, spec in specs.items()
    ]


def _verdict(victims: set[str], started: int) -> GangVerdict:
    kind = Kind.PREEMPTS if victims else Kind.PLACED if started else Kind.WAITS
    return GangVerdict(kind, frozenset(victims), started)


def _name(scenario: Scenario, name: str) -> str:
    return f"agree-{scenario.seed}-{name}"


def _home(namespace: str) -> str:
    return SPACES.replace("/api/v1", f"/apis/{API}") + f"/{namespace}"
