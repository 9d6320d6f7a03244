"""The marks that every page shares: ladder, shield, quota bar, ages, durations, amounts, icons."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from portal.kit.pages import formatting

register = template.Library()

SHIELDS: Final = {
    "non-preemptible": "shield-filled",
    "semi-preemptible": "shield-half-filled",
    "preemptible": "shield",
}
# phase -> (tone, word): Pending is called what it is for the people who wait.
PHASES: Final = {
    "Creating": ("wait", "Creating"),
    "Initializing": ("wait", "Initializing"),
    "Resuming": ("wait", "Resuming"),
    "Pending": ("wait", "Waiting"),
    "Updating": ("wait", "Updating"),
    "Running": ("good", "Running"),
    "Completed": ("done", "Completed"),
    "Degraded": ("warn", "Degraded"),
    "Failed": ("bad", "Failed"),
}

register.filter("gpu", formatting.gpu_text)
register.filter("gpus", formatting.gpus_text)
register.simple_tag(formatting.source_text, name="source")


@register.simple_tag
def icon(name: str, css: str = "") -> SafeString:
    """An icon of the sprite; decoration only, so hidden from assistive technology."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true" focusable="false"><use href="{}#{}"/></svg>', css, _sprite(), name
    )


@cache
def _sprite() -> str:
    return static("vendor/tabler-icons/sprite.svg")


@register.filter
def duration(seconds: float | None) -> str:
    """Seconds as "5 h 40 m"."""
    return "" if seconds is None else formatting.duration_text(seconds)


@register.filter
def seconds_since(at: datetime | None) -> float | None:
    """Seconds from a moment until now."""
    return None if at is None else (timezone.now() - at).total_seconds()


@register.simple_tag
def ago(at: datetime | None) -> SafeString:
    """A past moment in words, exact on hover."""
    if at is None:
        return SafeString("–")
    words = f"{formatting.duration_text(timezone.now() - at)} ago"
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), exact(at), words)


@register.filter
def exact(at: datetime | None) -> str:
    """The exact moment, with its zone."""
    return f"{at:%Y-%m-%d %H:%M:%S %Z}" if at else ""


@register.simple_tag
def age(at: datetime | None) -> SafeString:
    """How current a reading is: "stale" after 30 s, "not current" after 5 min."""
    found = formatting.age_of(at, now=timezone.now())
    moment = at.isoformat() if at else ""
    return format_html(
        '<time class="age age-{}" datetime="{}" title="{}">{}</time>', found.tone, moment, exact(at), found.words
    )


@register.simple_tag
def phase(name: str) -> SafeString:
    """A workload's phase as a badge; the word carries the meaning, not the colour."""
    tone, word = PHASES.get(name, ("off", name))
    return format_html('<span class="mark mark-{}">{}</span>', tone, word)


@register.simple_tag
def simulated(cluster: Any) -> SafeString:
    """The word beside every number of a simulated cluster."""
    return SafeString('<span class="word word-simulated">simulated</span>' if cluster.is_simulated else "")


@register.filter
def lookup(mapping: Mapping[str, Any], key: str) -> Any:
    """A value by a key that is only known at run time; the key itself where there is none."""
    return mapping.get(key, key)


@register.filter
def plus(number: int, more: int) -> int:
    """Sum, for drawings."""
    return number + more


@register.filter
def json_text(value: Any) -> str:
    """A value of a manifest as JSON; "absent" for none."""
    return "absent" if value is None else json.dumps(value, indent=2, ensure_ascii=False)


@register.simple_tag
def shield(preemptibility: str) -> SafeString:
    """Filled = non-preemptible, half = semi-preemptible, outline = preemptible; always with the word."""
    return format_html(
        '<span class="shield">{}{}</span>', icon(SHIELDS.get(preemptibility, "shield"), "icon-sm"), preemptibility
    )


@register.simple_tag(takes_context=True)
def ladder(context: dict[str, Any], name: str, value: int) -> SafeString:
    """The rungs of the dictionary, lit up to this value. The page's `priority_values` are the offered ones."""
    values: Sequence[int] = sorted(context.get("priority_values") or [value])
    rung = sum(1 for each in values if each <= value)
    step = 18 / max(len(values), 1)
    heights = [f"{19 - step * at:.1f}" for at in range(len(values))]
    rungs = "".join(  # numbers only; a page has fifty ladders
        f'<line x1="4" x2="14" y1="{y}" y2="{y}" class="{"lit" if at < rung else "unlit"}"/>'
        for at, y in enumerate(heights)
    )
    label = f"priority {name}, {value}, rung {rung} of {len(values)}"
    return format_html(
        '<span class="ladder"><svg viewBox="0 0 18 22" role="img" aria-label="{}"><title>{}</title>'
        '<path class="rail" d="M4 1v20M14 1v20"/>{}</svg><span>{} <span class="value">{}</span></span></span>',
        label,
        label,
        SafeString(rungs),
        name,
        value,
    )


@register.simple_tag
def gpu_squares(states: Sequence[str]) -> SafeString:
    """A square per GPU of a node. states: fixed, used, part, free or away; the words beside it carry the meaning."""
    squares = "".join(  # a page has hundreds
        f'<rect class="cell cell-{state}" x="{16 * at + 1}" y="1" width="12" height="12"/>'
        + (f'<path class="cell cell-half" d="M{16 * at + 1} 13h12v-12z"/>' if state == "part" else "")
        for at, state in enumerate(states)
    )
    size = f'width="{16 * len(states)}" height="14"'
    return SafeString(f'<svg {size} aria-hidden="true" focusable="false">{squares}</svg>')


@register.inclusion_tag("components/quota_bar.html")
def quota_bar(
    *, deserved: int, used: int, non_preemptible: int, limit: int | None, at: datetime | None = None
) -> dict[str, Any]:
    """Deserved as the frame, in quota solid, over-quota hatched, limit as a tick; the sentence is its text twin."""
    return {"bar": formatting.QuotaBar(deserved, used, non_preemptible, limit), "at": at}


@register.simple_tag(takes_context=True)
def without(context: dict[str, Any], name: str) -> str:
    """This page's URL without one of its filters, from the first page."""
    query = context["request"].GET.copy()
    for key in (name, "after"):
        query.pop(key, None)
    return f"?{query.urlencode()}"


@register.filter
def item(mapping: Mapping[str, Any], key: str) -> Any:
    """A value by a key that is only known at run time, or nothing."""
    return mapping.get(key, "")
