"""Pages of replays: a list with the form for another one, progress, and the report."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from clusters.connection.services.scheduler_config import proposals_of
from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.inventory.models import Cluster
from clusters.watch.selectors import Metric, SeriesPoint, TimeWindow
from portal.kit.api.parsers import csv_response
from portal.kit.errors import RungError
from portal.kit.pages.api_snippets import ApiRequest, action_snippet, form_snippets
from portal.kit.pages.formatting import duration_text, gpus_text
from portal.kit.pages.forms import PageForm, form_data
from portal.kit.pages.htmx import render_page
from portal.kit.security.request_identity import actor_of
from tenants.usage.rules import Trend
from tenants.usage.selectors import draw
from workloads.dictionary.models import HIGHEST_VALUE, LOWEST_VALUE, Priority
from workloads.dictionary.selectors import require_dictionary
from workloads.replay import services as replay_services
from workloads.replay.models import Replay, ReplayStatus
from workloads.replay.rules import COLUMNS, MOST_BYTES, PARTS
from workloads.replay.services import KEPT, UNFINISHED

LISTED: Final = 50
REPLAYS: Final = "/api/v1/replays"
DAY: Final = timedelta(days=1)
TONES: Final = {
    ReplayStatus.PENDING.value: "wait",
    ReplayStatus.RUNNING.value: "wait",
    ReplayStatus.READY.value: "good",
    ReplayStatus.FAILED.value: "bad",
    ReplayStatus.CANCELLED.value: "wait",
}
SCHEDULERS: Final = (("", _lazy("as the cluster")), *((name, flavour.title) for name, flavour in FLAVOURS.items()))
CONFIGURATIONS: Final = (
    ("", _lazy("as known, else its default")),
    *((name, f"{flavour.title}: {name}") for flavour in FLAVOURS.values() for name in proposals_of(flavour)),
)
QUOTA_LINE: Final = _lazy(
    "One per line: project (or department NAME), node pool, deserved GPUs, limit (may be empty), over-quota weight."
)
WORD_LINE: Final = _lazy("One per line: word in the file = priority.")
POINTERS: Final = {
    "/start": "start",
    "/end": "end",
    "/trace/csv": "csv",
    "/proposedConfiguration": "proposed_configuration",
}


class ReplayForm(PageForm):
    """What to replay, and the proposal. `priority_*`: the value of each priority in the proposal."""

    name = forms.CharField(label=_lazy("Name"), max_length=100)
    cluster = forms.ModelChoiceField(label=_lazy("Cluster"), queryset=Cluster.objects.only("name").order_by("name"))
    start = forms.DateField(label=_lazy("From"), widget=forms.DateInput(attrs={"type": "date"}), required=False)
    end = forms.DateField(label=_lazy("To"), widget=forms.DateInput(attrs={"type": "date"}), required=False)
    csv = forms.FileField(label=_lazy("Trace (CSV)"), required=False)
    project = forms.CharField(label=_lazy("Project of other owners"), required=False)
    default_priority = forms.CharField(label=_lazy("Priority of rows without one"), required=False)
    words = forms.CharField(
        label=_lazy("Priorities in the trace"),
        help_text=WORD_LINE,
        widget=forms.Textarea(attrs={"rows": 2}),
        required=False,
    )
    scheduler = forms.ChoiceField(label=_lazy("Scheduler today"), choices=SCHEDULERS, required=False)
    proposed_scheduler = forms.ChoiceField(label=_lazy("Proposed scheduler"), choices=SCHEDULERS, required=False)
    proposed_configuration = forms.ChoiceField(
        label=_lazy("Configuration of the proposed scheduler"), choices=CONFIGURATIONS, required=False
    )
    quotas = forms.CharField(
        label=_lazy("Proposed quotas"), help_text=QUOTA_LINE, widget=forms.Textarea(attrs={"rows": 3}), required=False
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._values = dict(Priority.objects.filter(retired_at=None).values_list("name", "value"))
        own: dict[str, forms.Field] = {
            f"priority_{name}": forms.IntegerField(
                label=name, min_value=LOWEST_VALUE, max_value=HIGHEST_VALUE, initial=value, required=False
            )
            for name, value in self._values.items()
        }
        own |= {f"column_{name}": forms.CharField(label=name, required=False) for name in COLUMNS}
        super().__init__(*args, **kwargs)
        for name, field in own.items():
            field.widget.attrs["class"] = "form-control"
            self.fields[name] = field

    def clean_cluster(self) -> Cluster:
        """All of it: the choices have only names."""
        return Cluster.objects.get(pk=self.cleaned_data["cluster"].pk)

    def clean_csv(self) -> str:
        """The text of the file. Its size is known before it is read."""
        file = self.cleaned_data.get("csv")
        if not file:
            return ""
        if file.size > MOST_BYTES:
            raise forms.ValidationError(_("The trace must be at most %(most)s bytes.") % {"most": MOST_BYTES})
        try:
            return str(file.read().decode())
        except UnicodeDecodeError:
            raise forms.ValidationError(_("The trace must be UTF-8 text.")) from None

    def clean_words(self) -> dict[str, str]:
        words: dict[str, str] = {}
        for number, line in enumerate(self.cleaned_data["words"].splitlines(), start=1):
            theirs, sign, ours = line.partition("=")
            if line.strip() and not sign:
                raise forms.ValidationError(_("Line %(number)d: %(form)s") % {"number": number, "form": WORD_LINE})
            words |= {theirs.strip(): ours.strip()} if sign else {}
        return words

    def clean_quotas(self) -> list[dict[str, Any]]:
        lines = enumerate(self.cleaned_data["quotas"].splitlines(), start=1)
        return [_quota(number, line) for number, line in lines if line.strip()]

    @property
    def body(self) -> dict[str, Any]:
        """As REST has it."""
        found = self.cleaned_data
        changed = {name: found[f"priority_{name}"] for name in self._values}
        body: dict[str, Any] = {
            "scheduler": found["scheduler"] or None,
            "proposedScheduler": found["proposed_scheduler"] or None,
            "proposedConfiguration": found["proposed_configuration"] or None,
            "priorities": [
                {"name": name, "value": value}
                for name, value in changed.items()
                if value is not None and value != self._values[name]
            ],
            "quotas": found["quotas"],
        }
        if found["csv"]:
            return body | {
                "trace": {
                    "csv": found["csv"],
                    "columns": {name: theirs for name in COLUMNS if (theirs := found[f"column_{name}"])},
                    "priorities": found["words"],
                    "priority": found["default_priority"] or None,
                    "project": found["project"] or None,
                }
            }
        days = {"start": found["start"], "end": found["end"] and found["end"] + DAY}
        return body | {name: datetime.combine(day, time(), tzinfo=UTC).isoformat() for name, day in days.items() if day}

    @property
    def columns(self) -> list[forms.BoundField]:
        return [self[f"column_{name}"] for name in COLUMNS]

    @property
    def is_trace_refused(self) -> bool:
        """Is there an error at the trace or at how to read it?"""
        reading = ("csv", "words", "default_priority", "project", *(f"column_{name}" for name in COLUMNS))
        return not self.errors.keys().isdisjoint(reading)

    @property
    def priorities(self) -> list[forms.BoundField]:
        """The highest first."""
        return [self[f"priority_{name}"] for name in sorted(self._values, key=lambda name: -self._values[name])]


def _quota(number: int, line: str) -> dict[str, Any]:
    cells = [cell.strip() for cell in line.split(",")] + ["", ""]
    kind, _space, name = cells[0].partition(" ")
    try:
        return {
            **({"department": name.strip()} if kind == "department" and name else {"project": cells[0]}),
            "nodePool": cells[1],
            "deservedGpus": _amount(cells[2]),
            "limitGpus": _amount(cells[3]) if cells[3] else None,
            "overQuotaWeight": _amount(cells[4]) if cells[4] else None,
        }
    except (ValueError, IndexError):
        raise forms.ValidationError(_("Line %(number)s: %(how)s") % {"number": number, "how": QUOTA_LINE}) from None


def _amount(text: str) -> float:
    found = float(text)
    if not 0 <= found <= 1_000_000:
        raise ValueError
    return found


@login_required
@require_http_methods(["GET", "POST"])
def replays(request: HttpRequest) -> HttpResponse:
    """All replays, newest first, and a form for another one."""
    actor = actor_of(request)
    require_dictionary(actor)
    form = ReplayForm(
        form_data(request), request.FILES if request.method == "POST" else None, initial=_initial(request)
    )
    if copied := form_snippets(request, form, lambda: _create_request(form)):
        return copied
    if request.method == "POST" and form.is_valid():
        requested = {"name": form.cleaned_data["name"], "cluster": form.cleaned_data["cluster"], "body": form.body}
        try:
            row = replay_services.create_replay(actor=actor, **requested)
        except RungError as error:
            form.show(error, _pointers(error))
        else:
            return redirect("workloads:replay", replay_id=row.pk)
    context = {"form": form, "rows": replay_services.replays()[:LISTED], "tones": TONES, "kept_days": KEPT.days}
    return render_page(request, "workloads/replay/list.html", context, status=422 if form.errors else 200)


def _initial(request: HttpRequest) -> dict[str, Any]:
    """The last seven days with today, and what a link proposes: `cluster` by name, `proposed_scheduler`."""
    today, named = timezone.now().date(), request.GET.get("cluster")
    clusters = list(Cluster.objects.filter(name=named) if named else Cluster.objects.all()[:2])
    return {
        "start": today - 6 * DAY,
        "end": today,
        "cluster": clusters[0].pk if len(clusters) == 1 else None,
        "proposed_scheduler": request.GET.get("proposed_scheduler", ""),
    }


def _create_request(form: ReplayForm) -> ApiRequest:
    named = {"name": form.cleaned_data["name"], "clusterId": str(form.cleaned_data["cluster"].pk)}
    return ApiRequest("POST", REPLAYS, {**named, **form.body})


def _pointers(error: RungError) -> Mapping[str, str]:
    """At which fields of the form its problems are shown."""
    named = {f"/trace/columns/{name}": f"column_{name}" for name in COLUMNS}
    quotas = {problem.pointer: "quotas" for problem in error.problems if problem.pointer.startswith("/quotas")}
    trace = {"/trace/project": "project", "/trace/priority": "default_priority", "/trace/priorities": "words"}
    return {**POINTERS, **named, **quotas, **trace}


@login_required
@require_safe
def replay(request: HttpRequest, replay_id: UUID) -> HttpResponse:
    """Progress while it runs, then the report."""
    require_dictionary(actor_of(request))
    row = replay_services.replay_of(key=replay_id)
    context = {"replay": row, "tones": TONES, "unfinished": row.status in UNFINISHED, **_report(row)}
    context |= {"source": _source(row), "proposal": list(_proposal(row)), **_window(row)}
    return render_page(request, "workloads/replay/detail.html", context, parts=("progress",))


@login_required
@require_POST
def cancel(request: HttpRequest, replay_id: UUID) -> HttpResponse:
    require_dictionary(actor_of(request))
    row = replay_services.replay_of(key=replay_id)
    call = ApiRequest("POST", f"{REPLAYS}/{row.pk}/cancel", rung=("replay", "cancel", str(row.pk)))
    if copied := action_snippet(request, call):
        return copied
    replay_services.cancel_replay(key=replay_id, actor=actor_of(request))
    messages.success(request, _("Replay cancelled."))
    return redirect("workloads:replay", replay_id=replay_id)


@login_required
@require_safe
def file(request: HttpRequest, replay_id: UUID) -> HttpResponse:
    require_dictionary(actor_of(request))
    row, text = replay_services.file_of_replay(key=replay_id)
    return csv_response(text, name=row.name)


def _source(row: Replay) -> str:
    """Which submissions are replayed."""
    if not row.request.get("start"):
        return _("Submissions of an uploaded trace.")
    start, end = (datetime.fromisoformat(row.request[name]).astimezone(UTC) for name in ("start", "end"))
    period = {"start": f"{start:%Y-%m-%d %H:%M}", "end": f"{end:%Y-%m-%d %H:%M}"}
    text = _("Recorded submissions from %(start)s to %(end)s UTC.") % period
    return text if end <= row.created_at else f"{text} {_('The period had not ended when the replay started.')}"


def _window(row: Replay) -> dict[str, str]:
    """The time that plots and GPU use are about, and what its end is."""
    if not row.result:
        return {}
    lasts = {"time": duration_text(row.result["seconds"])}
    if row.result.get("allAtOnce"):
        return {
            "window": _("%(time)s, from the submissions, which all came at once, until both runs had ended") % lasts,
            "window_end": _("both runs ended, %(time)s later") % lasts,
        }
    return {
        "window": _("%(time)s, from the first to the last submission") % lasts,
        "window_end": _("last submission, %(time)s later") % lasts,
    }


def _proposal(row: Replay) -> Iterator[str]:
    """What differs from today's settings, as it was given."""
    body = row.request
    today = body.get("scheduler") or row.cluster.flavour
    if (proposed := body.get("proposedScheduler")) and proposed != (row.result or {}).get("scheduler", today):
        yield _("scheduler %(name)s") % {"name": flavour_for(proposed).title}
    if name := body.get("proposedConfiguration"):
        yield _("configuration %(name)s") % {"name": name}
    for each in body.get("priorities") or []:
        yield _("priority %(name)s %(value)s") % each
    for each in body.get("quotas") or []:
        yield _quota_text(each)


def _quota_text(each: Mapping[str, Any]) -> str:
    kind = "department" if each.get("department") else "project"
    text = _("quota of %(kind)s %(name)s in %(pool)s: %(gpus)s deserved") % {
        "kind": kind, "name": each[kind], "pool": each["nodePool"], "gpus": _gpus(each["deservedGpus"]),
    }  # fmt: skip
    limit, weight = each.get("limitGpus"), each.get("overQuotaWeight")
    text += _(", no limit") if limit is None else _(", limit %(gpus)s") % {"gpus": _gpus(limit)}
    return text if weight is None else text + _(", over-quota weight %(weight)s") % {"weight": f"{weight:g}"}


def _gpus(amount: float) -> str:
    return gpus_text(round(amount * 1000))


def _report(row: Replay) -> dict[str, Any]:
    """Groups of figures, and GPUs in use and waiting as drawings: after solid, before dashed."""
    found = row.result
    if not found:
        return {}
    whole = {"name": _("All submissions"), **found["all"]}
    groups = [
        (_("Priority"), found["priorities"]),
        (_("Project"), found["projects"]),
    ]
    plots = [
        (_("GPUs in use"), "used", _trend(found["usedGpus"], found["seconds"])),
        (_("GPUs waiting"), "waiting", _trend(found["waitingGpus"], found["seconds"])),
    ]
    models = {side: flavour_for(found[side]).title for side in ("scheduler", "proposedScheduler")}
    if configuration := found.get("proposedConfiguration"):
        models["proposedScheduler"] += f" ({configuration})"
    return {"result": found, "models": models, "whole": whole, "groups": groups, "plots": plots}


def _trend(curves: Mapping[str, list[float]], seconds: int) -> Trend:
    start = datetime(2000, 1, 1, tzinfo=UTC)
    window = TimeWindow(start, start + timedelta(seconds=seconds), PARTS)
    part = timedelta(seconds=seconds / PARTS)
    return draw(
        [
            SeriesPoint(start + (index + 1) * part, {Metric.GPU_HELD: after * 1000, Metric.GPU_DESERVED: before * 1000})
            for index, (before, after) in enumerate(zip(curves["before"], curves["after"], strict=True))
        ],
        window,
    )
