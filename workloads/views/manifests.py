"""A workload's texts: what was sent, and what Rung makes of it for the cluster."""

import yaml

from clusters.flavours import flavour_for
from workloads.models import Workload
from workloads.queues import job_spec


def sent_yaml(workload: Workload) -> str:
    """What was sent, or the rebuilt manifest where a form was."""
    raw = workload.raw
    if isinstance(raw.get("text"), str):
        return str(raw["text"])
    return as_yaml(raw.get("manifest") or raw or workload.spec["manifest"])


def clone_text(workload: Workload) -> str:
    """Its rebuilt manifest under a free name, for the submit page."""
    manifest = workload.spec["manifest"]
    return as_yaml({**manifest, "metadata": {**manifest["metadata"], "name": f"{workload.name[:58]}-copy"}})


def applied_yaml(workload: Workload) -> str:
    """The objects that Rung keeps on the cluster for it, as its flavour renders them now."""
    flavour = flavour_for(workload.project.cluster.flavour)
    return "---\n".join(as_yaml(each) for each in flavour.render(job_spec(workload)))


def as_yaml(value: object) -> str:
    """Plain YAML in the order of writing."""
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    return text
