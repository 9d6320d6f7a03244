"""Lets the simulated clusters' run times and grace periods pass faster."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from clusters.sandbox.models import SandboxClock
from clusters.sandbox.services.simulation import set_speed
from portal.kit.security.actors import SYSTEM, Actor, Channel

OPERATOR = Actor(SYSTEM.kind, SYSTEM.id, SYSTEM.name, Channel.COMMAND)


class Command(BaseCommand):
    """`manage.py sandbox_speed 60`: from now on sixty times faster; what ran before keeps its age."""

    help = "Set how many times faster than real time the simulated clusters run."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("speed", type=int)

    def handle(self, *args: Any, **options: Any) -> None:
        """The same speed for every sandbox."""
        for clock in SandboxClock.objects.select_related("cluster"):
            set_speed(cluster=clock.cluster, speed=options["speed"], actor=OPERATOR)
