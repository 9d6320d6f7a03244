"""Plugins only: the order of a run, the shared cast, and real parts to test against."""

pytest_plugins = [
    "tests.support.order",
    "tests.support.fixtures",
    "tests.support.lab",
    "tests.factories.cast",
    "tests.support.rest_clients",
    "tests.support.route_matrix",
]
