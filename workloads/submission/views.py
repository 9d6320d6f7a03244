"""Submit pages: the form and the manifest, what they start from, the forecast, and copies of both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.text import slugify
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

import workloads
from portal.kit.errors import BadRequest, NotFound, RungError, ValidationFailed
from portal.kit.pages.api_snippets import (
    ApiSnippet,
    action_snippets,
    portal_address,
    wants_snippets,
)
from portal.kit.pages.forms import form_data, suggestions
from portal.kit.pages.htmx import render_page, requested_partial
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import access_for
from tenants.organisation.models import Project
from workloads.dictionary.selectors import workload_types
from workloads.forecast.rules.forecast import Forecast
from workloads.forecast.selectors.pod_groups import counts_above
from workloads.forecast.services.storage import stored_forecast
from workloads.intake import IntakeRefused, WorkloadSpec, read_native
from workloads.intake.serializers import SubmitTarget, as_manifest, document_of, of_form, of_manifests
from workloads.intake.services import grants_of, read_fields, read_text
from workloads.lifecycle.selectors.workloads import expected_objects
from workloads.lifecycle.serializers.workloads import action_request
from workloads.lifecycle.views.detail import as_yaml
from workloads.state.models import Workload
from workloads.state.selectors.workloads import workload_or_404
from workloads.submission.forms import FieldsForm, ManifestForm, SubmitBase, WayOutForm
from workloads.submission.selectors import naming_rest
from workloads.submission.services import check_names, replace_waiting, replacement, submit_all
from workloads.workload_templates.models import WorkloadTemplate
from workloads.workload_templates.rules import FormPrefill, keepable, start_from
from workloads.workload_templates.selectors import merge_template, template_or_404, unknown_pools, visible_templates
from workloads.workload_templates.services import runnable
from workloads.workload_templates.views import first_values, form_for_new, show_form

FOLDER: Final = Path(workloads.__file__).parent / "intake" / "examples"
EXAMPLES: Final = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def example_text(name: str) -> str:
    """The text of one of them; empty for any other name."""
    return (FOLDER / f"{name}.yaml").read_text(encoding="utf-8") if name in EXAMPLES else ""


def submit_recipes(request: HttpRequest, form: SubmitBase, specs: Sequence[WorkloadSpec]) -> list[ApiSnippet]:
    project = form.chosen_project
    if isinstance(form, FieldsForm):
        return of_form(portal_address(request), form.fields_for_intake, specs[0], home_of(project), grants_of(project))
    return of_manifests(portal_address(request), specs, home_of(project))


def home_of(project: Project) -> SubmitTarget:
    """The project by the ids that the API asks for."""
    return SubmitTarget(str(project.pk), project.name, str(project.cluster_id))


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
        raise NotFound from None


def started(request: HttpRequest, template: WorkloadTemplate | None) -> FormPrefill:
    if template is None:
        return FormPrefill(initial(request))
    whole = merge_template(template)
    start = start_from(template.kind, whole.spec, whole.master)
    home = {"project": template.project.name} if template.project else {}
    chosen = {**start.initial, **home, **initial(request)}
    complete = bool(start.unsaid) and not runnable(template)
    return replace(start, initial=chosen, complete=complete, gone=unknown_pools(template))


def offered(actor: Actor) -> list[tuple[str, list[WorkloadTemplate]]]:
    """Templates that the reader may see, by their place: the widest first."""
    rows = [(row.place.words, row) for row in visible_templates(actor).order_by("name", "pk")[:MOST]]
    width = {"tenant": 0, "cluster": 1, "department": 2, "project": 3}
    rows.sort(key=lambda each: (width[each[1].scope], each[0]))
    return [(words, [row for _words, row in same]) for words, same in groupby(rows, key=lambda each: each[0])]


def keep(request: HttpRequest, form: FieldsForm, spec: WorkloadSpec) -> HttpResponse:
    """The checked form as a template that can be named and kept. ValidationFailed where no template says the same."""
    (raw,) = form.raws([spec])
    found = keepable(form.cleaned_data["type"], raw)
    if found is None:
        message = "This cannot be saved as a template. Templates support only Run:ai's native fields of the type."
        raise ValidationFailed(message, code="no_template")
    given = first_values(found, name=spec.name, project=form.chosen_project)
    return show_form(request, form_for_new(actor_of(request), initial=given))


Read = Callable[[bool], Sequence[WorkloadSpec]]
MOST_FORECASTS: Final = 3
CARDS: Final = (
    "Training",
    "Workspace",
    "Distributed",
    "Inference",
    "NIMInference",
    "HuggingFaceInference",
    "DistributedInference",
)


@login_required
@require_http_methods(["GET", "POST"])
def submit_form(request: HttpRequest) -> HttpResponse:
    """Fill in a form; only the fields that the type needs."""
    actor = actor_of(request)
    types = {row.name: row for row in workload_types().filter(name__in=CARDS)}
    choices = [(name, types[name].title) for name in CARDS if name in types]
    template = chosen_template(request, actor)
    start = started(request, template)
    form = FieldsForm(form_data(request), projects=_projects(actor), types=choices, initial=dict(start.initial))

    def read(keep: bool) -> Sequence[WorkloadSpec]:  # noqa: FBT001 - one flag, passed by this module only
        return [read_fields(fields=form.fields_for_intake, project=form.chosen_project, actor=actor, keep=keep)]

    begun = {"template": template, "start": start, "offered": partial(offered, actor)}
    return _answer(request, form, actor, read, "workloads/submission/submit.html", {"types": types, **begun})


@login_required
@require_http_methods(["GET", "POST"])
def submit_text(request: HttpRequest) -> HttpResponse:
    """Paste a manifest, start from an example, or from a copy of a workload."""
    actor = actor_of(request)
    form = ManifestForm(form_data(request), projects=_projects(actor), initial=initial_text(request, actor))

    def read(keep: bool) -> Sequence[WorkloadSpec]:  # noqa: FBT001 - one flag, passed by this module only
        project = form.chosen_project
        specs = read_text(data=form.data_bytes, project=project, actor=actor, explicit=form.explicit, keep=keep)
        return [replace(spec, node_pools=form.node_pools or spec.node_pools) for spec in specs]

    return _answer(request, form, actor, read, "workloads/submission/submit_yaml.html", {"examples": EXAMPLES})


def _projects(actor: Actor) -> QuerySet[Project]:
    return access_for(actor).projects(Permission.SUBMIT)


def _answer(
    request: HttpRequest, form: SubmitBase, actor: Actor, read: Read, template: str, context: Mapping[str, Any]
) -> HttpResponse:
    """1. read what was sent  2. check it for the panel, keep it, or submit it  3. show a refusal, losing nothing."""
    if suggested := suggestions(request, form):
        return suggested
    checking = requested_partial(request) == "forecast"
    keeping = not checking and "keep" in request.POST
    shown: dict[str, Any] = {"form": form, "checking": checking, **context}
    status = 200
    if request.method == "POST" and form.is_valid():
        try:
            with naming_rest(form.chosen_project):
                specs = read(not (checking or keeping))
            if keeping and isinstance(form, FieldsForm):
                return keep(request, form, specs[0])
            if not checking:
                return _submitted(request, _submit(form, actor, specs))
            shown |= _forecasts(form, actor, specs) | {"recipes": submit_recipes(request, form, specs)}
        except RungError as error:
            shown["refusal"] = error
            form.show(error, form.pointers)
            status = error.status
    elif request.method == "POST":
        status = 422
    return render_page(request, template, shown, parts=("forecast",), status=200 if checking else status)


def _submit(form: SubmitBase, actor: Actor, specs: Sequence[WorkloadSpec]) -> list[Workload]:
    return submit_all(
        specs=specs, project=form.chosen_project, actor=actor, raws=form.raws(specs), key=form.idempotency_key
    )


def _forecasts(form: SubmitBase, actor: Actor, specs: Sequence[WorkloadSpec]) -> dict[str, Any]:
    """What the panel shows of a file: the first few workloads, and the objects that they would become."""
    project = form.chosen_project
    check_names(specs, project)
    types = workload_types().filter(name__in={spec.type_name for spec in specs[:MOST_FORECASTS]})
    found = list[tuple[WorkloadSpec, Forecast]]()
    for spec in specs[:MOST_FORECASTS]:
        found.append((spec, stored_forecast(spec=spec, project=project, actor=actor, above=tuple(found))))
    objects = [
        each
        for spec, seen in found
        for each in expected_objects(spec=spec, effective=seen.effective, pool=seen.pool, project=project)
    ]
    return {
        "titles": {row.name: row.title for row in types},
        "forecasts": found,
        "together": counts_above(project.cluster),
        "rest": len(specs) - MOST_FORECASTS,
        "objects": "---\n".join(map(as_yaml, objects)),
    }


def _submitted(request: HttpRequest, workloads: Sequence[Workload]) -> HttpResponse:
    names = ", ".join(workload.name for workload in workloads)
    messages.success(request, _("Submitted %(names)s. Sending it to the cluster.") % {"names": names})
    if len(workloads) == 1:
        return redirect("workloads:detail", workload_id=workloads[0].pk)
    return redirect("workloads:list")


@login_required
@require_POST
def take_way_out(request: HttpRequest, workload_id: UUID) -> HttpResponse:
    """Put one with another preemptibility, pool or size in the place of a workload that waits."""
    actor, form = actor_of(request), WayOutForm(request.POST)
    workload = workload_or_404(actor, workload_id)
    if not form.is_valid():
        raise BadRequest("Choose what to change: preemptibility, node_pool, gpus, cpu or memory.", code="bad_way")
    way = form.way
    if wants_snippets(request):
        spec = replacement(workload=workload, way=way, actor=actor)
        calls = [as_manifest(spec, home_of(workload.project)), action_request(workload, "delete")]
        return action_snippets(request, calls)
    made = replace_waiting(workload=workload, way=way, actor=actor)
    words = _("%(made)s replaces %(name)s, which was deleted. Its history stays.")
    messages.success(request, words % {"made": made.name, "name": workload.name})
    return redirect("workloads:detail", workload_id=made.pk)


def clone_text(workload: Workload) -> str:
    """Its rebuilt manifest under a free name, for the submit page."""
    manifest = workload.spec["manifest"]
    return as_yaml({**manifest, "metadata": {**manifest["metadata"], "name": f"{workload.name[:58]}-copy"}})


def template_text(template: WorkloadTemplate) -> str:
    """What it says with its assets, as a manifest; nothing where a submission would still have to say more."""
    name = slugify(template.name)[:58] or "copy"
    try:
        spec = read_native(merge_template(template).native(template.kind, name), scope=grants_of(None))
    except IntakeRefused:
        return ""
    return document_of([spec])
