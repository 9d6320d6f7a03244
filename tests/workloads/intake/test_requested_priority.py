"""T35-T38: what a manifest may ask for, and what of it is only a request."""

from dataclasses import replace

import pytest

from tests.workloads.intake.manifests import SCOPE, VALID, Manifest, pod, problems_of, read
from workloads.dictionary.rules.resolution import Dictionary, PriorityEntry, Request
from workloads.intake import Explicit

LEGACY = Dictionary(
    [
        PriorityEntry("train", 50),
        PriorityEntry("build", 100),
        PriorityEntry("high", 125),
        PriorityEntry("inference", 125, alias_of="high"),
    ]
)


def with_labels(labels: dict[str, str]) -> Manifest:
    body = VALID["Job"]()
    body["metadata"]["labels"] = labels
    return body


@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical"])
def test_t35_the_clusters_own_classes_are_refused_everywhere(name: str) -> None:
    assert "/metadata/labels/priorityClassName" in problems_of(with_labels({"priorityClassName": name}))
    assert "/spec/priorityClassName" in problems_of(pod(priorityClassName=name))
    assert problems_of(VALID["Job"](), explicit=Explicit(priority=name))


def test_t36_a_number_or_a_policy_is_refused() -> None:
    assert {"/spec/priority", "/spec/preemptionPolicy"} <= problems_of(pod(priority=1, preemptionPolicy="Never")).keys()


@pytest.mark.parametrize("word", ["maybe", "Preemptible", "NON-PREEMPTIBLE", "true", ""])
def test_t37_preemptibility_is_one_of_three_words(word: str) -> None:
    found = problems_of(with_labels({"kai.scheduler/preemptibility": word}))
    allowed = found["/metadata/labels/kai.scheduler~1preemptibility"].allowed
    assert set(allowed) == {"preemptible", "semi-preemptible", "non-preemptible"}


KNOWING = replace(SCOPE, priorities=LEGACY)


@pytest.mark.parametrize("name", ["PreemptHigherPriority", "High", "system-node-critical"])
def test_t37_an_unknown_class_in_a_template_is_refused_with_the_known_names(name: str) -> None:
    found = problems_of(pod(priorityClassName=name), scope=KNOWING)
    assert {pointer: problem.allowed for pointer, problem in found.items()} == {
        "/spec/priorityClassName": ("train", "build", "high")
    }


def test_all_that_is_wrong_is_found_in_one_round() -> None:
    body = pod(priorityClassName="urgent")
    body["metadata"] |= {"namespace": "kube-system", "labels": {"priorityClassName": "soon"}}
    body["spec"]["containers"] = [{"image": "evil.example/x:1", "name": "Main"}]
    assert set(problems_of(body, scope=KNOWING, explicit=Explicit(priority="now"))) == {
        "/priority",
        "/metadata/namespace",
        "/metadata/labels/priorityClassName",
        "/spec/priorityClassName",
        "/spec/containers/0/image",
        "/spec/containers/0/name",
    }


def gang(master: str, worker: str) -> Manifest:
    body = VALID["PyTorchJob"]()
    for role, name in (("Master", master), ("Worker", worker)):
        body["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]["priorityClassName"] = name
    return body


def test_the_templates_of_one_workload_name_one_entry() -> None:
    found = problems_of(gang("high", "build"), scope=KNOWING)
    (pointer,) = found
    assert pointer == "/spec/pytorchReplicaSpecs/Worker/template/spec/priorityClassName"
    assert (found[pointer].code, found[pointer].allowed) == ("priorities_differ", ("train", "build", "high"))
    assert problems_of(gang("high", "high"), scope=KNOWING) == {}
    assert problems_of(gang("high", "inference"), scope=KNOWING) == {}


def test_t38_labels_and_explicit_values_are_kept_apart() -> None:
    body = with_labels({"priorityClassName": "very-high", "kai.scheduler/preemptibility": "non-preemptible"})
    request = read(body, explicit=Explicit(priority="low", preemptibility="preemptible")).request
    assert request == Request(
        explicit_priority="low",
        label_priority="very-high",
        explicit_preemptibility="preemptible",
        label_preemptibility="non-preemptible",
    )


@pytest.mark.parametrize("kind", sorted(VALID))
def test_t38_what_is_rendered_no_longer_says_what_was_asked(kind: str) -> None:
    body = VALID[kind]()
    body["metadata"]["labels"] = {"priorityClassName": "high", "team": "a"}
    spec = read(body)
    assert spec.request.label_priority == "high"
    assert spec.manifest["metadata"]["labels"] == {"team": "a"}
