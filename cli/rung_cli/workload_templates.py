"""Templates: submissions of one kind that are filled in beforehand, found by name where they hold."""

from collections.abc import Mapping
from typing import Any, Final

from rung_cli.errors import UsageError
from rung_cli.http.client import Api, rows
from rung_cli.lookup import is_id, not_found
from rung_cli.native_submit import SubmissionKind, kind_of

PATH: Final = "v1/workload-templates"
Template = dict[str, Any]
SCOPES: Final = ("project", "department", "cluster", "tenant")
"""The nearest first."""


def list_of(api: Api, search: str) -> list[Template]:
    """All that one may see with that part of a name, by name."""
    return rows(api, PATH, "entries", query={"search": search})


def name_of(template: Mapping[str, Any]) -> str:
    """Not of it alone: another scope, and another kind, may have the same."""
    return str(template["meta"]["name"])


def holds_in(template: Template, project: Mapping[str, Any]) -> bool:
    """May a submission to the project name it?"""
    meta = template["meta"]
    owners = {"project": project["id"], "department": project["parent"]["id"], "cluster": project["clusterId"]}
    return meta["scopeType"] not in owners or str(meta["scopeId"]) == str(owners[meta["scopeType"]])


def find(api: Api, text: str, project: Mapping[str, Any], kind: SubmissionKind | None) -> Template:
    """By its id, or the nearest of that name: the project's, its department's, its cluster's, everybody's.

    `kind`: the one that it must have. ApiError (404) where there is none, UsageError where two are of the same scope.
    """
    if is_id(text):
        found: list[Template] = [api.get(f"{PATH}/{text}")]
    else:
        named = list_of(api, text)
        found = [each for each in named if name_of(each) == text and holds_in(each, project)]
    fitting = [each for each in found if kind in {None, kind_of(each)}]
    if not fitting:
        if found:
            raise not_found(f"Template {text} is of type {kind_of(found[0])}, not {kind}.")
        raise not_found(f"No template {text} applies in {project['name']}.")
    narrowest = min(SCOPES.index(each["meta"]["scopeType"]) for each in fitting)
    nearest = [each for each in fitting if SCOPES.index(each["meta"]["scopeType"]) == narrowest]
    if len(nearest) > 1:
        kinds = ", ".join(kind_of(each).value for each in nearest)
        raise UsageError(f"Template {text} exists for several types: {kinds}.", hint="Choose one with --type.")
    return nearest[0]
