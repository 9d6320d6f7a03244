"""`python -m rung_cli`."""

from rung_cli.main import entry

entry()
