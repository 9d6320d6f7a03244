"""T1-T9: whose object it is, what it is, and what it may call itself."""

from typing import Any

import pytest

from tests.workloads.intake.manifests import SCOPE, VALID, problems_of, read
from workloads.intake import IntakeRefused, read_yaml

MANAGED = (
    "kai.scheduler/queue",
    "kueue.x-k8s.io/queue-name",
    "pod-security.kubernetes.io/enforce",
    "rung.dev/owner",
    "project",
)


def job(**metadata: Any) -> dict[str, Any]:
    body = VALID["Job"]()
    body["metadata"].update(metadata)
    return body


@pytest.mark.parametrize("namespace", ["runai-other", "kube-system", "../runai-team", "", "RUNAI-TEAM", 7])
def test_t01_only_the_own_namespace_may_be_named(namespace: object) -> None:
    assert "/metadata/namespace" in problems_of(job(namespace=namespace))


def test_t01_the_own_namespace_is_implied() -> None:
    assert "namespace" not in read(job(namespace=SCOPE.namespace)).manifest["metadata"]


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("scheduling.k8s.io/v1", "PriorityClass"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("v1", "Namespace"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
        ("v1", "Service"),
        ("v1", "Secret"),
    ],
)
def test_t02_kinds_that_are_no_workloads_are_refused(api_version: str, kind: str) -> None:
    problems = problems_of({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}})
    assert problems.keys() & {"/kind", "/apiVersion"}


def test_t03_a_list_is_not_taken() -> None:
    assert "/kind" in problems_of({"apiVersion": "v1", "kind": "List", "items": [VALID["Pod"]()]})


def test_t03_one_bad_document_refuses_the_whole_file() -> None:
    good = b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: docker.io/a/b:1}]}\n"
    hidden = b"---\napiVersion: v1\nkind: Secret\nmetadata: {name: b}\n"
    with pytest.raises(IntakeRefused) as refusal:
        read_yaml(good + hidden, scope=SCOPE)
    assert [(each.document, each.pointer) for each in refusal.value.problems] == [(1, "/kind")]


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("V1", "Pod"),
        ("batch/v1beta9", "Job"),
        ("batch/v1 ", "Job"),
        ("batch/v1", "job"),
        ("bаtch/v1", "Job"),  # a Cyrillic letter
        ("batch/v1", "Job\n"),
        (["v1"], "Pod"),
        (None, None),
    ],
)
def test_t04_versions_and_kinds_are_compared_exactly(api_version: object, kind: object) -> None:
    body = {**VALID["Job"](), "apiVersion": api_version, "kind": kind}
    assert problems_of(body).keys() & {"/kind", "/apiVersion"}


def test_t04_a_missing_version_is_not_quoted() -> None:
    with pytest.raises(IntakeRefused, match="Job must be batch/v1, and none is given"):
        read_yaml(b"kind: Job\n", scope=SCOPE)


@pytest.mark.parametrize("name", ["", "x" * 254, "Upper", "a\nb", "-x", "<b>x</b>", "a/b", 5, "x" * 64])
def test_t05_names_are_dns_labels(name: object) -> None:
    assert "/metadata/name" in problems_of(job(name=name))


def test_t05_a_generated_name_is_a_prefix_that_rung_completes() -> None:
    body = VALID["Job"]()
    body["metadata"] = {"generateName": "sweep-"}
    spec = read(body)
    assert spec.generate_name
    assert "generateName" not in spec.manifest["metadata"]


def test_t05_name_and_prefix_together_are_refused() -> None:
    assert "/metadata" in problems_of(job(generateName="sweep-"))


@pytest.mark.parametrize(
    ("tag", "field", "value"),
    [
        ("t06", "ownerReferences", [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]),
        ("t07", "finalizers", ["rung.dev/stay"]),
        ("t08", "uid", "1"),
        ("t08", "resourceVersion", "7"),
        ("t08", "managedFields", []),
        ("t08", "creationTimestamp", "2030-01-01T00:00:00Z"),
        ("t08", "deletionTimestamp", "2030-01-01T00:00:00Z"),
        ("t08", "generation", 4),
    ],
)
def test_t06_t07_t08_what_the_server_writes_is_refused(tag: str, field: str, value: object) -> None:
    assert f"/metadata/{field}" in problems_of(job(**{field: value})), tag


def test_t08_a_status_is_refused() -> None:
    assert "/status" in problems_of({**VALID["Job"](), "status": {"succeeded": 1}})


@pytest.mark.parametrize("label", MANAGED)
def test_t09_labels_of_controllers_are_refused(label: str) -> None:
    pointer = "/metadata/labels/" + label.replace("/", "~1")
    assert pointer in problems_of(job(labels={label: "project.2.h100"}))


@pytest.mark.parametrize("label", MANAGED)
def test_t09_they_are_refused_on_the_pod_template_too(label: str) -> None:
    body = VALID["Job"]()
    body["spec"]["template"]["metadata"] = {"labels": {label: "x"}}
    assert problems_of(body)


def test_t09_the_managed_by_label_is_left_out_with_a_warning() -> None:
    spec = read(job(labels={"app.kubernetes.io/managed-by": "Helm", "team": "a"}))
    assert spec.manifest["metadata"]["labels"] == {"team": "a"}
    assert "app.kubernetes.io/managed-by" in spec.warnings[0]


@pytest.mark.parametrize("annotation", ["rung.dev/generation", "kai.scheduler/anything", "whatever.example/x"])
def test_t09_unknown_annotations_are_refused(annotation: str) -> None:
    assert problems_of(job(annotations={annotation: "1"}))
