"""The address of what serves: a Service beside the Deployment of an inference, whatever the scheduler is. Pure.

Only of Rung's own types: who submits a Deployment as a manifest asked for a Deployment and nothing else.
"""

from typing import Final

from clusters.kinds_core import SERVICE
from clusters.ownership import owned
from clusters.ports import OWNER, JobSpec, Manifest

SERVED: Final = frozenset({"Inference", "NIMInference", "HuggingFaceInference"})
PREFIX: Final = "s-"
"""Before a name that begins with a digit: the name of a Service begins with a letter."""


def service_for(job: JobSpec) -> Manifest | None:
    """A ClusterIP Service for all of its pods; None where it is no inference or names no port."""
    ports = _ports(job)
    if job.type_name not in SERVED or not ports:
        return None
    owner = f"workload.{job.id}"
    return {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.kind,
        "metadata": owned(service_name(job), owner=owner, generation=job.generation, namespace=job.namespace),
        "spec": {
            "type": "ClusterIP",
            "selector": {OWNER: owner},
            "ports": [{"name": "http", "port": port, "targetPort": port, "protocol": "TCP"} for port in ports],
        },
    }


def service_name(job: JobSpec) -> str:
    """The object's own name, as far as a Service may have it."""
    return job.name if job.name[0].isalpha() else f"{PREFIX}{job.name}"


def _ports(job: JobSpec) -> list[int]:
    """The first port of its first container: what the form asks for."""
    template = (job.manifest.get("spec") or {}).get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or [{}]
    return [int(each["containerPort"]) for each in (containers[0].get("ports") or [])[:1]]
