"""A workload's texts: what was sent, and what Rung makes of it for the cluster."""

import yaml
from django.utils.text import slugify

from workloads.intake import IntakeRefused, read_native
from workloads.models import Workload, WorkloadTemplate
from workloads.prepared import combined
from workloads.selectors.applied import Applied
from workloads.services.reading import scope_of
from workloads.submit_recipes import document_of


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


def template_text(template: WorkloadTemplate) -> str:
    """What it says with its assets, as a manifest; nothing where a submission would still have to say more."""
    name = slugify(template.name)[:58] or "copy"
    try:
        spec = read_native(combined(template).native(template.kind, name), scope=scope_of(None))
    except IntakeRefused:
        return ""
    return document_of([spec])


def applied_yaml(applied: Applied) -> str:
    """The objects that Rung keeps on the cluster for a workload."""
    return "---\n".join(map(as_yaml, applied.manifests))


def as_yaml(value: object) -> str:
    """Plain YAML in the order of writing."""
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    return text
