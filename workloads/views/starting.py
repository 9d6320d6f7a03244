"""Where a submit form starts: choices in the URL, an example, a copy or a template; and how it becomes a template."""

from dataclasses import replace
from itertools import groupby
from typing import Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from portal.core.actors import Actor
from portal.core.errors import Absent, Refused
from portal.core.http import actor_of
from workloads.examples import example_text
from workloads.intake import WorkloadSpec
from workloads.models import WorkloadTemplate
from workloads.prepared import combined
from workloads.scopes import place_of_row
from workloads.selectors import workload_or_404
from workloads.selectors.templates import template_or_404, visible_templates
from workloads.services.templates import runnable
from workloads.submit_forms import FieldsForm
from workloads.template_starts import Start, keepable, start_from
from workloads.views.manifests import clone_text, template_text
from workloads.views.templates import first_values, form_for_new, show_form

PREFILLED: Final = ("project", "type", "priority", "preemptibility", "node_pool")
MOST: Final = 200
"""So many templates are offered on the submit page; the page of templates lists them all."""


def initial(request: HttpRequest) -> dict[str, str]:
    """Choices named in the URL; the form knows nothing but its own."""
    return {name: chosen[:63] for name in PREFILLED if (chosen := request.GET.get(name, ""))}


def initial_text(request: HttpRequest, actor: Actor) -> dict[str, str]:
    """An example, a clone or a template named in the URL; what is foreign is absent."""
    if clone := request.GET.get("clone"):
        workload = workload_or_404(actor, clone)
        chosen = {"priority": workload.priority.name, "preemptibility": workload.preemptibility}
        return {"project": workload.project.name, "text": clone_text(workload), **chosen, **initial(request)}
    if template := chosen_template(request, actor):
        home = {"project": template.project.name} if template.project else {}
        return {**home, **initial(request), "text": template_text(template)}
    return {**initial(request), "text": example_text(request.GET.get("example", ""))}


def chosen_template(request: HttpRequest, actor: Actor) -> WorkloadTemplate | None:
    """The template that the URL names; a foreign one is absent."""
    key = request.GET.get("template", "")
    if not key:
        return None
    try:
        return template_or_404(actor, UUID(key))
    except ValueError:
        raise Absent from None


def started(request: HttpRequest, template: WorkloadTemplate | None) -> Start:
    """What the form begins with."""
    if template is None:
        return Start(initial(request))
    whole = combined(template)
    start = start_from(template.kind, whole.spec, whole.master)
    home = {"project": template.project.name} if template.project else {}
    chosen = {**start.initial, **home, **initial(request)}
    return replace(start, initial=chosen, complete=bool(start.unsaid) and not runnable(template))


def offered(actor: Actor) -> list[tuple[str, list[WorkloadTemplate]]]:
    """Templates that the reader may see, by their place: the widest first."""
    rows = [(place_of_row(row).words, row) for row in visible_templates(actor).order_by("name", "pk")[:MOST]]
    width = {"tenant": 0, "cluster": 1, "department": 2, "project": 3}
    rows.sort(key=lambda each: (width[each[1].scope], each[0]))
    return [(words, [row for _words, row in same]) for words, same in groupby(rows, key=lambda each: each[0])]


def keep(request: HttpRequest, form: FieldsForm, spec: WorkloadSpec) -> HttpResponse:
    """The checked form as a template that can be named and kept. Refused where no template says the same."""
    (raw,) = form.raws([spec])
    found = keepable(form.cleaned_data["type"], raw)
    if found is None:
        message = "A template cannot say this: only what Run:ai's native fields of its type can be kept as one."
        raise Refused(message, code="no_template")
    given = first_values(found, name=spec.name, project=form.chosen_project)
    return show_form(request, form_for_new(actor_of(request), initial=given))
