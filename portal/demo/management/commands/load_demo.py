"""Loads the demo organisation into an empty installation."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from portal.demo.play import load
from tenants.organisation.models import Project


class Command(BaseCommand):
    """`manage.py load_demo`: does nothing where there is a project already."""

    help = "Load the demo organisation: a simulated cluster, departments, projects, users and about 40 workloads."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Password of the demo's people and its service account, and the sandbox's speed."""
        parser.add_argument("--password", default=settings.RUNG_DEMO_PASSWORD)
        parser.add_argument("--speed", type=int, default=settings.RUNG_DEMO_SPEED)

    def handle(self, *args: Any, **options: Any) -> None:
        """Load it, or leave what is there."""
        if Project.objects.exists():
            self.stdout.write("Nothing was loaded: projects already exist.")
            return
        if not options["password"]:
            raise CommandError("Set a password: --password, or RUNG_DEMO_PASSWORD in the environment.")
        load(options["password"], options["speed"], self.stdout.write)
