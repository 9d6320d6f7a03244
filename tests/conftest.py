"""Plugins only: the shared cast, and real parts to test against."""

from importlib.util import find_spec

pytest_plugins = [
    "tests.support.fixtures",
    *(name for name in ("tests.factories.cast",) if find_spec(name)),
]
