"""Plugins only: the shared cast, and real parts to test against."""

pytest_plugins = ["tests.support.fixtures", "tests.support.lab", "tests.factories.cast"]
