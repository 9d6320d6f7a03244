"""A body of every kind a tenant may submit, built from the table of kinds itself."""

from typing import Any

from clusters.ports.gateway import Manifest
from clusters.ports.pod_templates import TemplatePath, TemplateShape, WorkloadKind
from tests.clusters.specs import pod_template

MAPS = ("ReplicaSpecs", "services")
"""Sections whose '*' stands for names; everywhere else it stands for items of a list."""


def sample(kind: WorkloadKind, **metadata: Any) -> Manifest:
    """The smallest body with something at every place that describes pods."""
    body: Manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "theirs", **metadata}}
    body.setdefault("spec", {})
    for path in kind.paths:
        _put(body, path.path.split("/")[1:], _content(path))
    return body


def _content(path: TemplatePath) -> dict[str, Any]:
    template = pod_template()
    match path.shape:
        case TemplateShape.TEMPLATE:
            return template
        case TemplateShape.STEPS:
            return {"steps": template["spec"]["containers"]}
        case TemplateShape.STEP:
            return {"name": "step", "container": template["spec"]["containers"][0]}
        case _:
            return {}


def _put(node: Any, tokens: list[str], content: dict[str, Any]) -> None:
    if not tokens:
        node.update({**content, **{key: node[key] for key in ("metadata",) if node.get(key)}})
        return
    token, rest = tokens[0], tokens[1:]
    below = rest[:1] == ["*"]
    if token == "*":
        node = node[0] if isinstance(node, list) else node.setdefault("worker", {})
        _put(node, rest, content)
        return
    if below and not token.endswith(MAPS):
        _put(node.setdefault(token, [{"name": "first"}]), rest, content)
    else:
        _put(node.setdefault(token, {}), rest, content)
