"""What every page shows around its content: the menu, and the dictionary that ladders are drawn on."""

from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from workloads.models import Priority

MENU: Final = (
    ("home", gettext_noop("Home"), "home"),
    ("workloads:list", gettext_noop("Workloads"), "list-details"),
    ("tenants:projects", gettext_noop("Projects"), "folder"),
    ("workloads:priorities", gettext_noop("Priorities"), "stairs"),
    ("workloads:types", gettext_noop("Types"), "category"),
    ("tenants:clusters", gettext_noop("Clusters"), "server-2"),
    ("workloads:reports", gettext_noop("Reports"), "archive"),
    ("tenants:audit", gettext_noop("Audit"), "history"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the menu."""

    title: str
    url: str
    icon: str
    active: bool


def shell(request: HttpRequest) -> dict[str, Any]:
    """Context processor: the menu and the offered priority values (read only by pages that draw a ladder)."""
    menu = SimpleLazyObject(lambda: navigation(request.path))
    return {"navigation": menu, "levels": SimpleLazyObject(offered_values)}


def navigation(path: str) -> list[Entry]:
    """The menu with the entry of this page marked."""
    entries = [(title, reverse(name), icon) for name, title, icon in MENU]
    return [Entry(_(title), url, icon, _is_within(path, url)) for title, url, icon in entries]


def _is_within(path: str, url: str) -> bool:
    return path == url or (url != "/" and path.startswith(url))


def offered_values() -> list[int]:
    """Values of the rungs, lowest first."""
    rungs = Priority.objects.filter(alias_of__isnull=True, retired_at__isnull=True)
    return list(rungs.order_by("value").values_list("value", flat=True))
