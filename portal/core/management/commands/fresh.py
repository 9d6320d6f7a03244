"""`manage.py fresh NAME…`: exit code 1 unless somebody of each kind worked lately. For health checks of containers."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.core import heartbeats


class Command(BaseCommand):
    """Ask the heartbeats."""

    help = "Exit with 1 unless each kind of process (worker, beat, observer) worked lately."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Kinds of processes."""
        parser.add_argument("names", nargs="+", choices=[heartbeats.WORKER, heartbeats.BEAT, heartbeats.OBSERVER])

    def handle(self, *args: Any, names: list[str], **options: Any) -> None:
        """Name those that are silent."""
        expected = [one for name in names for one in heartbeats.names_of(name)]
        if silent := heartbeats.silent(expected):
            raise CommandError(f"No work lately: {', '.join(silent)}")
