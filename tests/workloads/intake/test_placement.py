"""Where a workload's pods are to go and how many start together: by annotation in a manifest, by field in the form."""

from typing import Any

import pytest

from tests.workloads.intake.manifests import SCOPE, VALID
from workloads.intake import FormFields, IntakeRefused, WorkloadSpec, read_form, read_object


def read(kind: str = "PyTorchJob", **notes: str) -> WorkloadSpec:
    manifest = VALID[kind]()
    manifest["metadata"]["annotations"] = {f"rung.dev/{name.replace('_', '-')}": text for name, text in notes.items()}
    return read_object(manifest, scope=SCOPE)


def form(**fields: Any) -> WorkloadSpec:
    given = {"type": "Distributed", "name": "theirs", "image": "docker.io/a/b:1", "workers": 4, "gpus": "8", **fields}
    return read_form(FormFields(**given), scope=SCOPE)


def test_pools_are_kept_in_their_order_and_once_each() -> None:
    assert read(node_pools="h100, a100,h100 ,l40s").node_pools == ("h100", "a100", "l40s")
    assert read().node_pools == ()


def test_a_stated_minimum_counts_and_reaches_the_field_that_operators_read() -> None:
    spec = form(min_member=2)
    assert (spec.pods, spec.min_member) == (4, 2)
    assert spec.manifest["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] == 2


def test_without_a_minimum_all_of_them_start_together() -> None:
    assert form().min_member == 4
    assert "runPolicy" not in form().manifest["spec"]


@pytest.mark.parametrize(
    ("kind", "minimum", "code"),
    [
        pytest.param("PyTorchJob", "9", "gang_too_large", id="more than it has"),
        pytest.param("Deployment", "2", "no_gang", id="a kind whose pods start one by one"),
        pytest.param("LeaderWorkerSet", "1", "two_minimums", id="another than its own field says"),
        pytest.param("PyTorchJob", "0", "bad_value", id="none"),
        pytest.param("PyTorchJob", "٣", "bad_value", id="digits of another script"),
    ],
)
def test_a_minimum_that_cannot_be_is_refused_at_its_annotation(kind: str, minimum: str, code: str) -> None:
    with pytest.raises(IntakeRefused) as refusal:
        read(kind, min_member=minimum)
    [problem] = refusal.value.problems
    assert (problem.pointer, problem.code) == ("/metadata/annotations/rung.dev~1min-member", code)


@pytest.mark.parametrize("text", ["pack", "BINPACK", ""])
def test_only_two_placements_are_known(text: str) -> None:
    with pytest.raises(IntakeRefused) as refusal:
        read(placement=text)
    assert refusal.value.problems[0].pointer == "/metadata/annotations/rung.dev~1placement"


def test_the_form_writes_the_same_annotations_as_a_manifest() -> None:
    notes = form(placement="spread", topology_key=" rack ", min_member=3).annotations
    assert notes == {"rung.dev/placement": "spread", "rung.dev/topology-key": "rack", "rung.dev/min-member": "3"}


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"min_member": 9}, "/min_member"),
        ({"placement": "pack"}, "/placement"),
        ({"topology_key": "no key!"}, "/topology_key"),
    ],
)
def test_what_is_wrong_is_shown_at_the_forms_field(fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(IntakeRefused) as refusal:
        form(**fields)
    assert [problem.pointer for problem in refusal.value.problems] == [pointer]


def test_where_pods_go_is_said_of_the_whole_workload_and_never_of_one_template() -> None:
    manifest = VALID["Deployment"]()
    manifest["spec"]["template"]["metadata"]["annotations"] = {"rung.dev/placement": "spread"}
    with pytest.raises(IntakeRefused) as refusal:
        read_object(manifest, scope=SCOPE)
    assert refusal.value.problems[0].code == "annotation_not_allowed"
