"""Submitting: what will happen if I press this? One URL answers the page, the live check and the submission."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from portal.core.actors import Actor
from portal.core.errors import RungError
from portal.core.htmx import render_page, wanted_part
from portal.core.http import actor_of
from portal.core.pageforms import sent
from tenants.models import Project
from tenants.permissions import Verb, standing_of
from workloads.examples import EXAMPLES
from workloads.intake import WorkloadSpec
from workloads.models import Workload
from workloads.selectors import workload_types
from workloads.services.preview import forecast
from workloads.services.reading import read_fields, read_text
from workloads.services.submission import submit_all
from workloads.submit_forms import FieldsForm, ManifestForm, SubmitBase
from workloads.views import starting
from workloads.views.copies import submit_recipes
from workloads.views.manifests import as_yaml

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
    template = starting.chosen_template(request, actor)
    start = starting.started(request, template)
    form = FieldsForm(sent(request), projects=_projects(actor), types=choices, initial=dict(start.initial))

    def read(keep: bool) -> Sequence[WorkloadSpec]:  # noqa: FBT001 - one flag, passed by this module only
        return [read_fields(fields=form.fields_for_intake, project=form.chosen_project, actor=actor, keep=keep)]

    begun = {"template": template, "start": start, "offered": partial(starting.offered, actor)}
    return _answer(request, form, actor, read, "workloads/submit.html", {"types": types, **begun})


@login_required
@require_http_methods(["GET", "POST"])
def submit_text(request: HttpRequest) -> HttpResponse:
    """Paste a manifest, start from an example, or from a copy of a workload."""
    actor = actor_of(request)
    form = ManifestForm(sent(request), projects=_projects(actor), initial=starting.initial_text(request, actor))

    def read(keep: bool) -> Sequence[WorkloadSpec]:  # noqa: FBT001 - one flag, passed by this module only
        project = form.chosen_project
        specs = read_text(data=form.data_bytes, project=project, actor=actor, explicit=form.explicit, keep=keep)
        return [replace(spec, node_pools=form.node_pools or spec.node_pools) for spec in specs]

    return _answer(request, form, actor, read, "workloads/submit_yaml.html", {"examples": EXAMPLES})


def _projects(actor: Actor) -> list[Project]:
    return list(standing_of(actor).projects(Verb.SUBMIT).select_related("department", "cluster").order_by("name"))


def _answer(
    request: HttpRequest, form: SubmitBase, actor: Actor, read: Read, template: str, context: Mapping[str, Any]
) -> HttpResponse:
    """1. read what was sent  2. check it for the panel, keep it, or submit it  3. show a refusal, losing nothing."""
    checking = wanted_part(request) == "forecast"
    keeping = not checking and "keep" in request.POST
    shown: dict[str, Any] = {"form": form, "checking": checking, **context}
    status = 200
    if request.method == "POST" and form.is_valid():
        try:
            specs = read(not (checking or keeping))
            if keeping and isinstance(form, FieldsForm):
                return starting.keep(request, form, specs[0])
            if not checking:
                return _submitted(request, _submit(form, actor, specs))
            shown |= _foretold(form, actor, specs) | {"recipes": submit_recipes(request, form, specs)}
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


def _foretold(form: SubmitBase, actor: Actor, specs: Sequence[WorkloadSpec]) -> dict[str, Any]:
    """What the panel shows of a file: the first few workloads, and what Rung takes of all."""
    project = form.chosen_project
    return {
        "forecasts": [(spec, forecast(spec=spec, project=project, actor=actor)) for spec in specs[:MOST_FORECASTS]],
        "rest": len(specs) - MOST_FORECASTS,
        "taken": "---\n".join(as_yaml(spec.manifest) for spec in specs),
    }


def _submitted(request: HttpRequest, workloads: Sequence[Workload]) -> HttpResponse:
    names = ", ".join(workload.name for workload in workloads)
    messages.success(request, _("Submitted %(names)s. A worker hands it to the cluster now.") % {"names": names})
    if len(workloads) == 1:
        return redirect("workloads:detail", workload_id=workloads[0].pk)
    return redirect("workloads:list")
