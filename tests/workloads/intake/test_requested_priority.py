"""T35-T38: what a manifest may ask for, and what of it is only a request."""

import pytest

from tests.workloads.intake.manifests import VALID, Manifest, pod, problems_of, read
from workloads.dictionary.rules.resolution import Request
from workloads.intake import Explicit, IntakeRefused, check_pod_classes

KNOWN = ("low", "high")


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


def test_t37_an_unknown_class_in_a_template_is_refused_with_the_known_names() -> None:
    request = read(pod(priorityClassName="PreemptHigherPriority")).request
    with pytest.raises(IntakeRefused) as refusal:
        check_pod_classes(request, KNOWN)
    (problem,) = refusal.value.problems
    assert (problem.pointer, problem.allowed) == ("/spec/priorityClassName", KNOWN)


def test_t37_a_known_class_in_a_template_passes() -> None:
    check_pod_classes(read(pod(priorityClassName="high")).request, KNOWN)


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
