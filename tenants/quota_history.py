"""Every change of a project's quotas as people read it: what, from, to, who, why."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from django.utils.translation import gettext as _

from portal.core.display import gpu_text
from tenants.models import PriorityCap, Project, ProjectQuota

MOST: Final = 50
GIB: Final = 2**30
_PLAIN: Final = ("over_quota_weight", "rank")


@dataclass(frozen=True, slots=True)
class QuotaEntry:
    """One saved version of a quota, with what it changed as (field, from, to)."""

    at: datetime
    what: str
    who: str
    why: str
    changes: tuple[tuple[str, str, str], ...]


def quota_changes(project: Project) -> list[QuotaEntry]:
    """Newest first, at most fifty, of quotas and caps, deleted ones too."""
    quotas = ProjectQuota.history.filter(project_id=project.pk).select_related("history_user", "node_pool")
    caps = PriorityCap.history.filter(project_id=project.pk).select_related("history_user")
    entries = [
        *_entries(list(quotas[: 4 * MOST]), _QUOTA, "node_pool_id"),
        *_entries(list(caps[: 4 * MOST]), _CAP, "priority"),
    ]
    return sorted(entries, key=lambda entry: entry.at, reverse=True)[:MOST]


def _entries(versions: list[Any], fields: tuple[str, ...], key: str) -> Iterator[QuotaEntry]:
    """Versions come newest first; each is compared with the one before it of the same row."""
    by_row: dict[object, list[Any]] = {}
    for version in versions:
        by_row.setdefault(getattr(version, key), []).append(version)
    for row in by_row.values():
        for now, before in pairwise([*row, None]):
            yield _entry(now, before, fields)


def _entry(now: Any, before: Any | None, fields: tuple[str, ...]) -> QuotaEntry:
    changes = tuple(
        (_LABELS[field], _text(before, field), _text(now, field))
        for field in fields
        if (getattr(before, field) != getattr(now, field) if before else _worth_saying(now, field))
    )
    pool = getattr(now, "node_pool", None)
    what = f"{_('Quota in')} {pool}" if pool else f"{_('Cap of')} {now.priority}"
    who = now.history_user.get_username() if now.history_user else _("a program")
    gone = ((_("row"), _("present"), _("removed")),) if now.history_type == "-" else ()
    return QuotaEntry(now.history_date, what, who, now.history_change_reason or "", gone or changes)


def _worth_saying(version: Any, field: str) -> bool:
    """A first version is told without its defaults."""
    return bool(getattr(version, field) != getattr(ProjectQuota(), field))


def _text(version: Any | None, field: str) -> str:
    if version is None:
        return "–"
    value = getattr(version, field)
    if value is None:
        return _("unlimited") if field.endswith("limit") else _("not counted")
    if field in _PLAIN:
        return str(value)
    return _amount(field, value)


def _amount(field: str, value: int) -> str:
    if field.startswith("gpu"):
        return f"{gpu_text(value)} GPU"
    return f"{gpu_text(value)} CPU" if field.startswith("cpu") else f"{value / GIB:.4g} GiB"


_QUOTA: Final = (
    "gpu_deserved",
    "gpu_limit",
    "cpu_deserved",
    "cpu_limit",
    "memory_deserved",
    "memory_limit",
    "over_quota_weight",
    "rank",
)
_CAP: Final = ("gpu_limit",)
_LABELS: Final = {
    "gpu_deserved": "GPU deserved",
    "gpu_limit": "GPU limit",
    "cpu_deserved": "CPU deserved",
    "cpu_limit": "CPU limit",
    "memory_deserved": "memory deserved",
    "memory_limit": "memory limit",
    "over_quota_weight": "over-quota weight",
    "rank": "rank",
}
