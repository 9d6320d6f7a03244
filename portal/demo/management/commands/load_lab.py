"""Connects the demo's lab, a real control plane on this machine, or lets go of it."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.demo import lab
from portal.kit.errors import Conflict, ValidationFailed


class Command(BaseCommand):
    """`manage.py load_lab KUBECONFIG`, or `manage.py load_lab --leave`."""

    help = "Connect the cluster of a kubeconfig as `lab`, with a department and a project; --leave pauses it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The kubeconfig of the account Rung is to use."""
        parser.add_argument("kubeconfig", nargs="?", type=Path)
        parser.add_argument("--leave", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["leave"] or options["kubeconfig"] is None:
            lab.leave()
            return
        try:
            cluster = lab.connect(options["kubeconfig"].read_bytes())
        except (Conflict, ValidationFailed) as error:
            raise CommandError(f"The lab could not be connected: {error}") from error
        self.stdout.write(f"Connected {cluster.name}: Kubernetes {cluster.version}.")
