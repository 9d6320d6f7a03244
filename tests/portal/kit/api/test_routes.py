"""What holds for every REST route: dry runs, retries, and a policy for each method."""

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from portal.kit.api.routes import WRAPPED, Route
from tenants.access.rules import Permission

ASKED = ("get", "post", "put", "patch", "delete")


def routes() -> list[type]:
    """Every view below /api/, but for the OpenAPI document and its pages."""

    def views(patterns: list[URLPattern | URLResolver]) -> list[type]:
        found = []
        for each in patterns:
            if isinstance(each, URLResolver):
                found += views(each.url_patterns)
            else:
                found.append(each.callback.cls if hasattr(each.callback, "cls") else each.callback.view_class)
        return found

    api = next(each for each in get_resolver().url_patterns if str(each.pattern) == "api/")
    return [view for view in views(api.url_patterns) if not view.__module__.startswith("drf_spectacular")]


@pytest.mark.parametrize("view", routes(), ids=lambda view: view.__name__)
def test_every_method_names_the_right_it_needs(view: type[Route]) -> None:
    assert issubclass(view, Route)
    methods = {name.upper() for name in ASKED if hasattr(view, name)}
    assert methods == set(view.access)
    assert all(rule.verb == "" or rule.verb in set(Permission) for rule in view.access.values())


@pytest.mark.parametrize("view", routes(), ids=lambda view: view.__name__)
def test_the_base_makes_dry_runs_and_repeats_of_every_write(view: type[Route]) -> None:
    assert all(hasattr(getattr(view, name), WRAPPED) for name in ASKED[1:] if hasattr(view, name))


def test_a_write_from_beside_the_base_is_wrapped_too() -> None:
    class Beside:
        def post(self) -> None:
            """It knows nothing of dry runs."""

    class Made(Beside, Route):
        """A route with somebody else's method."""

    class Again(Made):
        """Wrapped once."""

    assert hasattr(Made.post, WRAPPED)
    assert Again.post is Made.post
