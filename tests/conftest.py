"""Plugins only: the shared cast, and real parts to test against."""

pytest_plugins = ["tests.support.fixtures", "tests.factories.cast"]
