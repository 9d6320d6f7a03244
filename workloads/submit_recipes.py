"""What the submit pages hold, as texts that submit the same from elsewhere. Pure.

The form's own types go by their native routes, where a native body means the very same workload; everything else goes
as the manifest that Rung made of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from portal.core.recipes import Recipe, Request, recipes, rung_text, yaml_text
from workloads.intake import FormFields, Scope, WorkloadSpec
from workloads.intake.names import NODE_POOLS, PREEMPTIBILITY_LABEL, PRIORITY_LABEL
from workloads.native_bodies import KINDS, flags_of, native_spec, says_the_same

MOST: Final = 10
METHODS: Final[Mapping[str, str]] = {
    "workspaces": "workloads.workspaces.create_workspace1",
    "trainings": "workloads.trainings.create_training1",
    "distributed": "workloads.distributed.create_distributed",
    "inferences": "workloads.inferences.create_inference1",
    "nim-services": "workloads.nvidia_nim.create_nim_service",
}


@dataclass(frozen=True, slots=True)
class Home:
    """Where a workload goes, by the ids that the API asks for."""

    project_id: str
    project: str
    cluster_id: str


def of_manifests(address: str, specs: Sequence[WorkloadSpec], home: Home) -> list[Recipe]:
    """A file's workloads, or a form's that only a manifest says."""
    requests = [as_manifest(spec, home) for spec in specs[:MOST]]
    notes = "".join(dict.fromkeys(map(_note, specs)))
    return recipes(address, requests, document=document_of(specs), command=_from_document(specs, home), note=notes)


def of_form(address: str, fields: FormFields, spec: WorkloadSpec, home: Home, scope: Scope) -> list[Recipe]:
    """A form's workload."""
    native = native_spec(fields)
    if native is None or not says_the_same(fields, native, spec, scope):
        return of_manifests(address, [spec], home)
    kind = KINDS[fields.type]
    body = {"name": fields.name, "projectId": home.project_id, "clusterId": home.cluster_id, "spec": native}
    version = "v2" if kind == "nim-services" else "v1"
    request = Request("POST", f"/api/{version}/workloads/{kind}", body, METHODS[kind])
    flags = flags_of(fields, native)
    command = rung_text(["submit", "--project", home.project, *flags]) if flags else _from_document([spec], home)
    return recipes(address, [request], document=document_of([spec]), command=command)


def _from_document(specs: Sequence[WorkloadSpec], home: Home) -> str:
    return rung_text(["submit", "--project", home.project, "-f", "-"], document_of(specs))


def document_of(specs: Sequence[WorkloadSpec]) -> str:
    """As YAML, with a line on what a manifest cannot say."""
    texts = (_note(spec) + yaml_text([manifest_of(spec)]) for spec in specs[:MOST])
    return "---\n".join(texts)


def _note(spec: WorkloadSpec) -> str:
    """What a manifest cannot say: the type of Run:ai's that the form chose."""
    if spec.type_name == spec.kind:
        return ""
    return f"# A manifest runs as type {spec.kind}, not {spec.type_name}: choose its priority where defaults differ.\n"


def manifest_of(spec: WorkloadSpec) -> dict[str, Any]:
    """Its manifest with what was asked of Rung written into it."""
    asked = spec.request
    classes = [name for _pointer, name in asked.pod_priority_class]
    labels = {
        PRIORITY_LABEL: asked.explicit_priority or asked.label_priority or next(iter(classes), None),
        PREEMPTIBILITY_LABEL: asked.explicit_preemptibility or asked.label_preemptibility,
    }
    notes = {NODE_POOLS: ",".join(spec.node_pools)}
    metadata = dict(spec.manifest["metadata"])
    if spec.generate_name:
        metadata = {"generateName": metadata.pop("name"), **metadata}
    for name, more in (("labels", labels), ("annotations", notes)):
        if whole := {**metadata.get(name, {}), **{key: text for key, text in more.items() if text}}:
            metadata[name] = whole
    return {**spec.manifest, "metadata": metadata}


def as_manifest(spec: WorkloadSpec, home: Home) -> Request:
    """A submission of the manifest that Rung made of it."""
    metadata = {"projectId": home.project_id, "clusterId": home.cluster_id}
    body = {"metadata": metadata, "manifest": manifest_of(spec)}
    return Request("POST", "/api/v2/workloads", body, "workloads.workloads_v2.create_workload_v2")
