"""Names to ids. A project by name or id; a workload by id, by name in the project at hand, or by `project/name`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from rung_cli.errors import ApiError, UsageError
from rung_cli.http.client import Api
from rung_cli.output.units import PHASE_WORDS

_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_UNKNOWN: Final = re.compile(r"No (?P<field>\w+) (?P<rest>.*)", re.DOTALL)
_FILTERS: Final[Mapping[str, tuple[str, str]]] = {
    "projectName": ("project", "rung projects"),
    "priorityClassName": ("priority", "rung priorities"),
    "type": ("type", "rung types"),
    "phase": ("phase", f"Phases: {', '.join(PHASE_WORDS)}."),
    "nodePool": ("pool", "rung pools"),
    "clusterUuid": ("cluster", "rung clusters"),
}
"""Columns of lists: the flag that a person typed, and where the names are."""
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
NONE_CHOSEN: Final = "No project. Set --project, RUNG_PROJECT, or the profile's project with: rung login --project NAME"


@dataclass(frozen=True, slots=True)
class WorkloadRef:
    """A workload as a person names it."""

    id: str = ""
    name: str = ""
    project: str = ""

    def __str__(self) -> str:
        return self.id or (f"{self.project}/{self.name}" if self.project else self.name)


def ref_of(text: str, project: str) -> WorkloadRef:
    """What was typed; `project` is the one at hand, empty for all that one may see."""
    if is_id(text):
        return WorkloadRef(id=text.lower())
    owner, slash, name = text.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not _NAME.fullmatch(owner)):
        raise UsageError(f"{text[:100]!r} is not a workload.", hint="Use a name, project/name or an id.")
    return WorkloadRef(name=name, project=owner or project)


def is_id(text: str) -> bool:
    """Could it be the id of anything but a project?"""
    return bool(_ID.fullmatch(text))


def workload(api: Api, text: str, project: str) -> dict[str, Any]:
    """The living workload of that name, or any by its id. ApiError (404) where there is none."""
    ref = ref_of(text, project)
    if ref.id:
        found: dict[str, Any] = api.get(f"v1/workloads/{ref.id}")
        return found
    wanted = f"name=={ref.name}" + (f",projectName=={ref.project}" if ref.project else "")
    with naming_flags():
        candidates = api.get("v1/workloads", filterBy=wanted, limit=20)["workloads"]
    if len(candidates) > 1:
        names = ", ".join(f"{each['projectName']}/{each['name']}" for each in candidates)
        raise UsageError(f"Several workloads are named {ref.name}: {names}.", hint="Add the project.")
    if not candidates:
        raise not_found(f"Workload {ref} not found.")
    return dict(candidates[0])


def project(api: Api, text: str, **query: str) -> dict[str, Any]:
    """The project of that name or id. UsageError without one, ApiError (404) where there is none.

    query: more to ask the list of projects for.
    """
    if not text:
        raise UsageError(NONE_CHOSEN)
    if not _NAME.fullmatch(text):
        raise UsageError(f"{text[:100]!r} is not a project.")
    found = api.get("v1/org-unit/projects", filterBy=f"name=={text}", limit=2, **query)["projects"]
    if found:
        return dict(found[0])
    if text.isdigit():
        known: dict[str, Any] = api.get(f"v1/org-unit/projects/{text}")
        return known
    names = [each["name"] for each in api.get("v1/org-unit/projects", limit=500)["projects"]]
    raise not_found(f"Project {text} not found.{did_you_mean(text, names)}", hint="List them with: rung projects")


def department(api: Api, text: str) -> dict[str, Any]:
    """The department of that name. UsageError for what is no name, ApiError (404) where there is none."""
    if not _NAME.fullmatch(text):
        raise UsageError(f"{text[:100]!r} is not a department.")
    found = api.get("v1/org-unit/departments", filterBy=f"name=={text}", limit=2)["departments"]
    if found:
        return dict(found[0])
    names = [each["name"] for each in api.get("v1/org-unit/departments", limit=500)["departments"]]
    raise not_found(f"Department {text} not found.{did_you_mean(text, names)}")


def cluster(api: Api, text: str) -> dict[str, Any]:
    """The cluster of that name or id. ApiError (404) where there is none."""
    known = api.get("v1/clusters", verbosity="metadata")
    for each in known:
        if text in {each["name"], each["uuid"]}:
            return dict(each)
    guess = did_you_mean(text, [each["name"] for each in known])
    raise not_found(f"Cluster {text} not found.{guess}", hint="List them with: rung clusters")


def did_you_mean(text: str, names: Sequence[str]) -> str:
    """A sentence with the name that is most like the text; empty where none is."""
    found = get_close_matches(text, names, n=1)
    return f" Did you mean {found[0]!r}?" if found else ""


def not_found(message: str, *, hint: str = "") -> ApiError:
    """As the server says it."""
    answer = {"code": 404, "message": message, "details": "not_found"}
    return ApiError(message, status=404, answer=answer, hint=hint)


@contextmanager
def naming_flags() -> Iterator[None]:
    """Report an unknown name in `filterBy` under the flag that it came from."""
    try:
        yield
    except ApiError as refusal:
        raise _of_flag(refusal) from None


def _of_flag(refusal: ApiError) -> ApiError:
    for problem in refusal.problems:
        match = _UNKNOWN.match(str(problem.get("message") or ""))
        if problem.get("pointer") == "/filterBy" and match and match["field"] in _FILTERS:
            flag, where = _FILTERS[match["field"]]
            message = f"--{flag}: No {flag} {match['rest']}"
            answer = {**refusal.answer, "message": message, "errors": []}
            hint = where if flag == "phase" else f"List them with: {where}"
            return ApiError(message, status=refusal.status, answer=answer, hint=hint)
    return refusal
