"""What a page's form would do, as texts to copy: the page asks for them while somebody types, and nothing is done."""

from collections.abc import Callable, Sequence
from typing import Final

from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal.core.recipes import Request, recipes

TARGETS: Final = {"copies": "", "act-copies": "act-"}
"""Where the page puts them, and what their ids begin with: by it a request for texts is told from the form itself."""


def address_of(request: HttpRequest) -> str:
    """Where this portal is, as its reader reached it."""
    return request.build_absolute_uri("/").rstrip("/")


def copies_of(request: HttpRequest, form: BaseForm, call: Callable[[], Request]) -> HttpResponse | None:
    """The texts for what the form holds; None where they are not asked for. Ask before anything is done.

    `call`: the form's act as a call of the REST API; asked only of a form that is complete.
    """
    if not asks_for_copies(request):
        return None
    return _told(request, [call()] if form.is_valid() else [], form=form)


def copies_of_act(request: HttpRequest, call: Request | None, *, lacking: str = "") -> HttpResponse | None:
    """The texts for a button that does one thing; None where they are not asked for. Ask before anything is done.

    `lacking`: what to do first, where there is no call yet.
    """
    return _told(request, [call] if call else [], lacking=lacking) if asks_for_copies(request) else None


def copies_of_acts(request: HttpRequest, calls: Sequence[Request]) -> HttpResponse:
    """The texts for a button that does several things, once it is known that they are asked for."""
    return _told(request, calls)


def asks_for_copies(request: HttpRequest) -> bool:
    """Is it the page that asks what its form would do?"""
    return request.method == "POST" and request.headers.get("HX-Target") in TARGETS


def _told(request: HttpRequest, calls: Sequence[Request], **more: BaseForm | str) -> HttpResponse:
    shown = recipes(address_of(request), calls) if calls else []
    context = {"recipes": shown, "place": TARGETS[request.headers["HX-Target"]], **more}
    return render(request, "components/copied.html", context)
