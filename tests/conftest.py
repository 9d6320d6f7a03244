"""Plugins only: the order of a run, its garbage collection, the shared cast, and real parts to test against."""

pytest_plugins = [
    "tests.support.order",
    "tests.support.garbage",
    "tests.support.generated",
    "tests.support.fixtures",
    "tests.support.lab",
    "tests.factories.cast",
    "tests.support.rest_clients",
    "tests.support.route_matrix",
]
