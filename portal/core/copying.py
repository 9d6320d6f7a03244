"""What a page's form would do, as texts to copy: the page asks for them while somebody types, and nothing is done."""

from collections.abc import Callable
from typing import Final

from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal.core.recipes import Request, recipes

TARGET: Final = "copies"
"""Where the page puts them: by it a request for texts is told from the form itself."""


def address_of(request: HttpRequest) -> str:
    """Where this portal is, as its reader reached it."""
    return request.build_absolute_uri("/").rstrip("/")


def copies_of(request: HttpRequest, form: BaseForm, call: Callable[[], Request]) -> HttpResponse | None:
    """The texts for what the form holds; None where they are not asked for. Ask before anything is done.

    `call`: the form's act as a call of the REST API; asked only of a form that is complete.
    """
    if request.method != "POST" or request.headers.get("HX-Target") != TARGET:
        return None
    shown = recipes(address_of(request), [call()]) if form.is_valid() else []
    return render(request, "components/copied.html", {"recipes": shown, "form": form})
