"""A native submission that names a template: what it leaves out is filled in, and who said it is told."""

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from portal.core.errors import BadRequest, Conflict, Problem, Refused
from tenants.models import Project
from workloads.filling import Sources
from workloads.services.templates import fill_from_template

Body = Mapping[str, Any]


def from_template(kind: str, body: Body, project: Project) -> dict[str, Any]:
    """What the template makes of the body, to be kept instead of what was sent; empty where it names none."""
    if body.get("templateId") is None:
        return {}
    found = fill_from_template(kind=kind, body=body, template_id=body["templateId"], project=project)
    filled: dict[str, Any] = {"spec": found.spec, "templateSources": dict(found.sources)}
    if kind == "distributed":
        filled |= {"masterSpec": found.master, "masterSpecSameAsWorker": found.master_same}
    return filled


def still_said(sent: Body, changed: Container[str]) -> dict[str, Any]:
    """The sources of what was sent, without those of fields of its `spec` that are another now."""
    if "templateSources" not in sent:
        return {}
    sources: Mapping[str, str] = sent["templateSources"]
    return {"templateSources": {at: who for at, who in sources.items() if at.split("/")[2] not in changed}}


@contextmanager
def naming_sources(filled: Body) -> Iterator[None]:
    """A refused value that was not sent names who said it."""
    try:
        yield
    except (BadRequest, Refused, Conflict) as error:
        sources = Sources(filled.get("templateSources", {}))
        if sources:
            error.problems = tuple(_told(each, sources) for each in error.problems)
        raise


def _told(problem: Problem, sources: Sources) -> Problem:
    source = sources.of(problem.pointer)
    return replace(problem, message=f"{problem.message} Said by {source}.") if source else problem
