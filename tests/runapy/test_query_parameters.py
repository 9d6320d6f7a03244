"""Every query parameter that the unmodified client can send is one that Rung takes, but for those that it refuses."""

import re
from collections.abc import Iterator
from pathlib import Path

import runai
from django.urls import Resolver404, resolve

from portal.kit.api.routes import Route, documented_parameters

API = Path(runai.__file__).parent / "api"
PATH = re.compile(r'resource_path = f?"([^"?]+)"(\.replace\("_", "-"\))?')
METHOD = re.compile(r'method = "(\w+)"')
SENT = re.compile(r'\(\s*"(\w+)",\s*\w+\s*\)')
UUID = "00000000-0000-4000-8000-000000000000"
REFUSED = {"/api/v1/users": {"filter"}, "/api/v1/asset/environment": {"distributedFramework"}}
"""Filters that Rung does not have: without an answer that says so, the list would look filtered."""


def operations() -> Iterator[tuple[str, str, set[str]]]:
    """Method, path and query parameters of everything that the client can ask."""
    for file in sorted(API.glob("*_api.py")):
        for body in re.split(r"\n    def ", file.read_text())[1:]:
            if found := PATH.search(body):
                path = re.sub(r"(\{[^}]*\})|_", lambda part: part[1] or "-", found[1]) if found[2] else found[1]
                query = body.partition("query_params = [")[2].partition("\n        ]")[0]
                method = METHOD.search(body)
                assert method
                yield method[1], path, set(SENT.findall(query))


def views() -> Iterator[tuple[Route, str, str, set[str]]]:
    """Of these what Rung has."""
    for method, path, sent in operations():
        for key in (UUID, "1", "name"):
            try:
                found = resolve(re.sub(r"\{[^}]*\}", key, path)).func
            except Resolver404:
                continue
            view = getattr(found, "view_class", None) or getattr(found, "cls", None)
            if view and issubclass(view, Route) and hasattr(view, method.lower()):
                requested = view(kwargs={})
                requested.request = None
                yield requested, method, path, sent
                break


def test_it_takes_what_the_client_sends() -> None:
    found = list(views())
    assert len(found) > 100
    lacking = {
        path: missing for view, method, path, sent in found if (missing := sent - documented_parameters(view, method))
    }
    assert lacking == REFUSED
