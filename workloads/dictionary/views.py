"""Pages of priorities and workload types. Editing never saves: it creates a plan."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from portal.kit.errors import Conflict, ValidationFailed
from portal.kit.pages.forms import NOTHING, PageForm, form_data
from portal.kit.security.request_identity import actor_of
from scheduling.forecast.eviction_matrix import VictimPlace
from scheduling.model.preemptibility import THRESHOLD
from tenants.access.rules import Permission
from tenants.access.selectors import can, visible_projects
from tenants.quotas.selectors.reclaims import ReclaimArrow, reclaims_on
from workloads.dictionary.forms import PresetForm, PriorityForm, TypeForm, pointers_of
from workloads.dictionary.models import Priority
from workloads.dictionary.rules.eviction_matrix import EvictionMatrix
from workloads.dictionary.rules.presets import PRESETS
from workloads.dictionary.selectors import (
    DictionaryRow,
    dictionary_rows,
    matrix_notes,
    matrix_on,
    require_dictionary,
    type_rows,
    workload_types,
)
from workloads.dictionary.services.plans import (
    plan_preset,
    plan_priority_change,
    plan_type_change,
    preset_named,
)
from workloads.plans.models import Plan

STEP: Final = 30
TOP: Final = 20


@dataclass(frozen=True, slots=True)
class Rung:
    """One entry with a note beside it, and its place from the top in SVG units."""

    name: str
    value: int
    note: str
    y: int


@dataclass(frozen=True, slots=True)
class Axis:
    """The drawing: rungs from the highest value down, and the line between non-preemptible and preemptible."""

    rungs: tuple[Rung, ...]
    line: int | None
    height: int


def draw_axis(entries: Sequence[tuple[str, int, str]]) -> Axis:
    """Rungs are evenly spaced, as values may be far apart; the line at 100 lies where it divides them."""
    ordered = sorted(entries, key=lambda entry: -entry[1])
    above = sum(1 for _name, value, _note in ordered if value >= THRESHOLD)
    gap = STEP if ordered else 0
    rungs = tuple(Rung(*entry, TOP + at * STEP + (gap if at >= above else 0)) for at, entry in enumerate(ordered))
    return Axis(rungs, TOP + above * STEP if ordered else None, TOP + len(ordered) * STEP + gap)


@login_required
@require_safe
def priorities(request: HttpRequest) -> HttpResponse:
    """The dictionary on its value axis, with the sync state per cluster."""
    rows = dictionary_rows()
    context = {
        "rows": list(zip(rows, _sync_fragments(rows), strict=True)),
        "axis": draw_axis([(row.name, row.value, _default_of(row.types)) for row in rows if row.offered]),
        "presets": PRESETS.values(),
        "may_edit": can(actor_of(request), Permission.MANAGE_DICTIONARY),
    }
    return render(request, "workloads/dictionary/priorities.html", context)


def _sync_fragments(rows: Sequence[DictionaryRow]) -> list[str]:
    """The clusters beside each entry as HTML, rendered once for all entries that have the same."""
    template, wanted = "workloads/dictionary/parts/sync_dots.html", {(row.dots, row.more) for row in rows}
    rendered = {(dots, more): render_to_string(template, {"dots": dots, "more": more}) for dots, more in wanted}
    return [rendered[row.dots, row.more] for row in rows]


@dataclass(frozen=True, slots=True)
class EvictionArc:
    """From a priority to the strongest priority that it evicts: heights in SVG units."""

    top: int
    bottom: int


@dataclass(frozen=True, slots=True)
class EvictionGraph:
    """Priorities from the strongest down, each with how many priorities it evicts, and arcs between them."""

    rungs: tuple[Rung, ...]
    arcs: tuple[EvictionArc, ...]
    height: int


def draw_evictions(matrix: EvictionMatrix) -> EvictionGraph:
    """The arcs say where a priority's reach begins: it goes down to the weakest priority from there."""
    heights = {priority.name: TOP + at * STEP for at, priority in enumerate(matrix.priorities)}
    victims = {
        priority.name: [victim for evictor, victim in matrix.own.pairs if evictor == priority.name]
        for priority in matrix.priorities
    }
    rungs = (
        Rung(priority.name, priority.value, _reach_text(len(victims[priority.name])), heights[priority.name])
        for priority in matrix.priorities
    )
    arcs = (EvictionArc(heights[who], min(heights[name] for name in found)) for who, found in victims.items() if found)
    return EvictionGraph(tuple(rungs), tuple(arcs), TOP + len(matrix.priorities) * STEP)


def _reach_text(count: int) -> str:
    if not count:
        return _("evicts no priority")
    return ngettext("evicts %(count)s priority", "evicts %(count)s priorities", count) % {"count": count}


@dataclass(frozen=True, slots=True)
class ReclaimDrawing:
    """Heights of each arrow at the left and at the right, and names by height: takers at the left, givers opposite."""

    arrows: Sequence[tuple[int, int]]
    takers: Mapping[int, str]
    givers: Mapping[int, str]

    @property
    def height(self) -> int:
        return TOP + max(len(self.takers), len(self.givers)) * STEP


def draw_reclaims(arrows: Sequence[ReclaimArrow]) -> ReclaimDrawing:
    """Draw the first arrows; a queue has one place at each side."""
    shown = arrows[:DRAWN]
    takers = {key: TOP + at * STEP for at, key in enumerate(dict.fromkeys((each.pool, each.taker) for each in shown))}
    givers = {key: TOP + at * STEP for at, key in enumerate(dict.fromkeys((each.pool, each.giver) for each in shown))}
    return ReclaimDrawing(
        arrows=[(takers[each.pool, each.taker], givers[each.pool, each.giver]) for each in shown],
        takers={height: queue.name for (_pool, queue), height in takers.items()},
        givers={height: queue.name for (_pool, queue), height in givers.items()},
    )


@login_required
@require_safe
def eviction_matrix(request: HttpRequest) -> HttpResponse:
    """Who can evict whom on a cluster, and with a project what it can win and lose."""
    actor, query = actor_of(request), request.GET
    projects = visible_projects(actor).order_by("name")
    whole = projects.select_related("cluster", "department")
    project = get_object_or_404(whole, name=query["project"]) if query.get("project") else None
    clusters = list(Cluster.objects.order_by("name").values("pk", "name"))
    named = project.cluster.name if project else query.get("cluster") or (clusters[0]["name"] if clusters else "")
    context: dict[str, Any] = {
        "clusters": clusters,
        "projects": projects.values("pk", "name")[:LISTED],
        "project": project,
        "project_id": project.pk if project else None,
    }
    if named:
        cluster = get_object_or_404(Cluster, name=named)
        matrix, reclaims = matrix_on(cluster), reclaims_on(cluster, actor, project=project)
        context |= {
            "cluster": cluster,
            "scheduler": flavour_for(cluster.flavour).title,
            "matrix": matrix,
            "graph": draw_evictions(matrix),
            "numbers": {rule: number for number, rule in enumerate(matrix.rules, start=1)},
            "places": PLACES,
            "reclaims": reclaims,
            "drawing": draw_reclaims(reclaims.arrows),
            "notes": matrix_notes(cluster, matrix, project),
        }
    return render(request, "workloads/dictionary/eviction_matrix.html", context)


PLACES: Final = {
    VictimPlace.OWN: _lazy("in the same project"),
    VictimPlace.OVER: _lazy("in another project above its deserved quota"),
    VictimPlace.WITHIN: _lazy("in another project within its deserved quota"),
}
DRAWN: Final = 12
"""Arrows in the drawing; the table below has more."""
LISTED: Final = 500
"""Projects to choose from."""


def _default_of(types: Sequence[str]) -> str:
    """The drawing has room for two; the table below names them all."""
    rest = f" +{len(types) - 2}" if len(types) > 2 else ""
    return ", ".join(types[:2]) + rest


@login_required
@require_http_methods(["GET", "POST"])
def add_priority(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    require_dictionary(actor)
    form = PriorityForm(form_data(request))
    return planned(request, form, lambda: plan_priority_change(change=form.change(), actor=actor), {"adding": True})


@login_required
@require_http_methods(["GET", "POST"])
def edit_priority(request: HttpRequest, name: str) -> HttpResponse:
    """Plan another value, policy or description, or a rename."""
    actor = actor_of(request)
    require_dictionary(actor)
    priority = get_object_or_404(Priority, name=name)
    form = PriorityForm(form_data(request), old=priority)
    return planned(
        request,
        form,
        lambda: plan_priority_change(change=form.change(), actor=actor),
        {"priority": priority},
        edits=True,
    )


@login_required
@require_POST
def retire_priority(request: HttpRequest, name: str) -> HttpResponse:
    plan = plan_priority_change(change={"op": "retire", "name": name}, actor=actor_of(request))
    return redirect("workloads:plan", plan_id=plan.pk)


@login_required
@require_http_methods(["GET", "POST"])
def load_preset(request: HttpRequest, name: str) -> HttpResponse:
    actor = actor_of(request)
    require_dictionary(actor)
    chosen = preset_named(name)
    form = PresetForm(form_data(request), preset=chosen)
    return planned(
        request,
        form,
        lambda: plan_preset(preset=name, actor=actor, preemptibilities=form.preemptibilities),
        {"preset": chosen},
        pointers_of(chosen.types),
    )


def planned(
    request: HttpRequest,
    form: PageForm,
    plan: Callable[[], Plan],
    context: Mapping[str, Any],
    pointers: Mapping[str, str] = NOTHING,
    *,
    edits: bool = False,
) -> HttpResponse:
    """The form; once it is sent and valid, its plan. A refusal comes back at its fields with everything typed.

    edits: it shows what there is, so that it must be changed.
    """
    if request.method == "POST" and form.is_valid():
        try:
            if edits:
                form.check_changed()
            return redirect("workloads:plan", plan_id=plan().pk)
        except (ValidationFailed, Conflict) as error:
            form.show(error, pointers)
    status = 422 if form.errors else 200
    return render(request, "workloads/dictionary/change.html", {"form": form, **context}, status=status)


@login_required
@require_safe
def type_list(request: HttpRequest) -> HttpResponse:
    """Every type with category, defaults and use."""
    offered, withdrawn = type_rows()
    context = {
        "rows": offered,
        "withdrawn": withdrawn,
        "may_edit": can(actor_of(request), Permission.MANAGE_DICTIONARY),
    }
    return render(request, "workloads/dictionary/types.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def edit_type(request: HttpRequest, type_id: object) -> HttpResponse:
    actor = actor_of(request)
    require_dictionary(actor)
    row = get_object_or_404(workload_types(), pk=type_id)
    form = TypeForm(form_data(request), initial=TypeForm.of(row))
    return planned(
        request,
        form,
        lambda: plan_type_change(type=row, change=form.change(), actor=actor),
        {"workload_type": row},
        edits=True,
    )


@login_required
@require_POST
def withdraw_type(request: HttpRequest, type_id: object) -> HttpResponse:
    """Plan to take no more submissions of a type."""
    actor = actor_of(request)
    require_dictionary(actor)
    row = get_object_or_404(workload_types(), pk=type_id)
    plan = plan_type_change(type=row, change={"op": "withdraw"}, actor=actor)
    return redirect("workloads:plan", plan_id=plan.pk)


@login_required
@require_http_methods(["GET", "POST"])
def offer_type(request: HttpRequest, type_id: object) -> HttpResponse:
    """Plan to offer a withdrawn type again, with the defaults it had or others."""
    actor = actor_of(request)
    require_dictionary(actor)
    row = get_object_or_404(workload_types(withdrawn=True), pk=type_id)
    form = TypeForm(form_data(request), initial=TypeForm.of(row))
    return planned(
        request,
        form,
        lambda: plan_type_change(type=row, change={"op": "offer", **form.change()}, actor=actor),
        {"workload_type": row},
    )
