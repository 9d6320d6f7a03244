"""`manage.py fresh NAME…`: exit code 1 unless each kind of process worked lately. For health checks of containers."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.kit.messaging import heartbeats


class Command(BaseCommand):
    """Ask the heartbeats."""

    help = (
        "Exit with 1 unless each process kind (worker, beat, observer) or task queue (worker:sync) was active recently."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Kinds of processes; of workers also single task queues."""
        kinds = [heartbeats.WORKER, heartbeats.BEAT, heartbeats.OBSERVER]
        parser.add_argument("names", nargs="+", choices=[*kinds, *heartbeats.names_of(heartbeats.WORKER)])

    def handle(self, *args: Any, names: list[str], **options: Any) -> None:
        expected = [one for name in names for one in ([name] if ":" in name else heartbeats.names_of(name))]
        if silent := heartbeats.silent(expected):
            raise CommandError(f"Not active recently: {', '.join(silent)}")
