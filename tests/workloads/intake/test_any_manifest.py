"""Whatever is sent: what is rebuilt stays inside the allowlist, and nothing but a refusal is raised."""

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.ports.workload_kinds import KINDS
from tests.support import kubernetes_schema
from tests.workloads.intake.manifests import SCOPE, VALID, Manifest, objects_in, read
from workloads.intake import IntakeRefused, WorkloadSpec, read_json, read_object, read_yaml
from workloads.submission.views import EXAMPLES, example_text

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["", "0"]),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        "hostNetwork",
        "privileged",
        "securityContext",
        "volumes",
        "hostPath",
        "serviceAccountName",
        "nodeName",
        "priority",
        "ownerReferences",
        "env",
        "containers",
        "image",
        "replicas",
        "template",
        "spec",
        "metadata",
        "labels",
    ]
)
NEVER = ("hostPath", "privileged", "hostNetwork", "nodeName", "ownerReferences", "preemptionPolicy", "hostPID")


@st.composite
def mangled(draw: st.DrawFn) -> Manifest:
    """A valid manifest of some kind with junk put into a few places."""
    body = VALID[draw(st.sampled_from(sorted(VALID)))]()
    for _ in range(draw(st.integers(0, 3))):
        places = objects_in(body)
        place = places[draw(st.integers(0, len(places) - 1))]
        keys = st.sampled_from(sorted(place)) if place else FIELDS
        place[draw(keys | FIELDS)] = draw(JUNK)
    return body


def true_keys(node: Any) -> set[str]:
    if isinstance(node, dict):
        below = set().union(*(true_keys(child) for child in node.values())) if node else set()
        return below | {key for key, value in node.items() if value not in (False, None)}
    if isinstance(node, list):
        return set().union(*(true_keys(child) for child in node)) if node else set()
    return set()


@settings(max_examples=300, deadline=None)
@given(mangled())
def test_a_mangled_manifest_is_refused_or_rebuilt_harmless(body: Manifest) -> None:
    before = copy.deepcopy(body)
    with suppress(IntakeRefused):
        hold_harmless(read_object(body, scope=SCOPE))
    assert repr(body) == repr(before)


def hold_harmless(spec: WorkloadSpec) -> None:
    assert not true_keys(spec.manifest) & set(NEVER)
    assert read(spec.manifest).manifest == spec.manifest
    assert WorkloadSpec.from_json(json.loads(json.dumps(spec.as_json()))) == spec


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_end_in_a_refusal(data: bytes) -> None:
    for reader in (read_yaml, read_json):
        with pytest.raises(IntakeRefused):
            reader(data, scope=SCOPE)


@settings(max_examples=100, deadline=None)
@given(mangled())
def test_yaml_and_json_say_the_same(body: Manifest) -> None:
    try:
        as_json = json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return

    def answer(reader: Any, data: bytes) -> Any:
        try:
            return [spec.manifest for spec in reader(data, scope=SCOPE)]
        except IntakeRefused:
            return "refused"  # YAML knows fewer characters, so 400 there may be 422 here

    assert answer(read_json, as_json) == answer(read_yaml, as_json)


@pytest.mark.parametrize("name", [kind.name for kind in KINDS if kind.core])
def test_kubernetes_accepts_what_is_rebuilt(name: str) -> None:
    kubernetes_schema.validate(read(VALID[name]()).manifest)


@pytest.mark.parametrize("name", sorted(VALID))
def test_a_valid_manifest_of_every_kind_is_taken_unchanged(name: str) -> None:
    spec = read(VALID[name]())
    assert spec.manifest == VALID[name]()
    assert spec.pods >= 1
    assert spec.type_name == name


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_shipped_example_is_taken(name: str) -> None:
    (spec,) = read_yaml(example_text(name).encode(), scope=SCOPE_OF_EXAMPLES)
    assert spec.pods >= 1
    assert yaml.safe_load(example_text(name))["metadata"]["name"] == spec.name


SCOPE_OF_EXAMPLES = type(SCOPE)(namespace="runai-team", allowed_registries=("docker.io", "nvcr.io", "quay.io"))
