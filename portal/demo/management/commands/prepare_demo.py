"""What the demo needs before its processes start: a current database, static files, an organisation to look at."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from portal.demo import organisation
from portal.demo.play import load
from portal.kit.errors import Conflict, ValidationFailed
from portal.kit.models import Heartbeat
from tenants.organisation.models import Project


class Command(BaseCommand):
    """`manage.py prepare_demo [KUBECONFIG]`. Safe at every start: data that is there stays."""

    help = (
        "Migrate, collect static files and load the demo organisation into an empty database: a simulated cluster, "
        "departments, projects, users and about 40 workloads. Connect the lab's cluster, or pause it."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("kubeconfig", nargs="?", type=Path, help="Of a lab that is up; without one it is paused.")

    def handle(self, *args: Any, kubeconfig: Path | None, **options: Any) -> None:
        """Bring everything up to date; heartbeats of an earlier run are forgotten."""
        call_command("migrate", verbosity=0, interactive=False)
        call_command("collectstatic", verbosity=0, interactive=False)
        if not Project.objects.exists():
            if not settings.RUNG_DEMO_PASSWORD:
                raise CommandError("Set a password: RUNG_DEMO_PASSWORD in the environment.")
            load(settings.RUNG_DEMO_PASSWORD, settings.RUNG_DEMO_SPEED, self.stdout.write)
        if kubeconfig:
            self._connect(kubeconfig)
        else:
            organisation.pause_lab()
        call_command("sandbox_speed", str(settings.RUNG_DEMO_SPEED))
        Heartbeat.objects.all().delete()

    def _connect(self, kubeconfig: Path) -> None:
        try:
            cluster = organisation.connect_lab(kubeconfig.read_bytes())
        except (Conflict, ValidationFailed) as error:
            raise CommandError(f"The lab could not be connected: {error}") from error
        self.stdout.write(f"Connected {cluster.name}: Kubernetes {cluster.version}.")
