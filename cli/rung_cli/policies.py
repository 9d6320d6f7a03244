"""Policies with their documents and where they hold, as people name the place."""

from collections.abc import Mapping
from typing import Any, Final

from rung_cli.http.client import Api, rows

PATH: Final = "v2/policy"
KINDS: Final[Mapping[str, str]] = {
    "workspace": "workspaces",
    "training": "trainings",
    "distributed": "distributed",
    "inference": "inferences",
    "distributedInference": "distributed-inferences",
    "nimService": "nim-services",
}
"""Each kind and its word in addresses."""
TENANT: Final = "tenant"
UNITS: Final = {"department": "v1/org-unit/departments", "project": "v1/org-unit/projects"}
Policy = dict[str, Any]


def list_of(api: Api) -> list[Policy]:
    """All that one may see, each with its `policy` and the name of its `scope`."""
    found = api.get(PATH)["policies"]
    names = _names(api, {each["meta"]["scope"] for each in found})
    return [{**each, "policy": _document(api, each), "scope": _scope(each["meta"], names)} for each in found]


def holds_in(policy: Policy, project: Mapping[str, Any]) -> bool:
    """Does it bind submissions to the project?"""
    meta = policy["meta"]
    owners = {"project": project["id"], "department": project["parentId"], "cluster": project["clusterId"]}
    return meta["scope"] == TENANT or str(meta.get(f"{meta['scope']}Id")) == str(owners[meta["scope"]])


def place_of(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Its scope, with the id of the scope, as the server wants it named."""
    return {name: meta[name] for name in ("scope", "projectId", "departmentId", "clusterId") if meta.get(name)}


def _document(api: Api, policy: Policy) -> dict[str, Any]:
    answer = api.get(f"{PATH}/{KINDS[policy['type']]}", **place_of(policy["meta"]))
    return dict(answer["policy"] or {})


def _names(api: Api, scopes: set[str]) -> dict[tuple[str, str], str]:
    found = {("cluster", each["uuid"]): each["name"] for each in api.get("v1/clusters", verbosity="metadata")}
    for scope, path in UNITS.items():
        if scope in scopes:
            units = rows(api, path, path.rpartition("/")[2], query={"sortBy": "name"})
            found |= {(scope, str(each["id"])): each["name"] for each in units}
    return found


def _scope(meta: Mapping[str, Any], names: Mapping[tuple[str, str], str]) -> str:
    """`project llm-team`, `installation`."""
    scope = meta["scope"]
    key = str(meta.get(f"{scope}Id"))
    return "installation" if scope == TENANT else f"{scope} {names.get((scope, key), key)}"
