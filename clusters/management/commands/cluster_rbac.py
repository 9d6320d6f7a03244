"""Prints what an admin of a cluster applies before connecting it: Rung's account and its rights."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from clusters.connection.rules.rights import ACCOUNT, NAMESPACE, as_yaml
from clusters.flavours.registry import FLAVOURS


class Command(BaseCommand):
    """`manage.py cluster_rbac --flavour kube | kubectl apply -f -`."""

    requires_system_checks = []  # text only: it needs no secret and no database
    help = "Print the ServiceAccount, ClusterRole and binding that Rung needs in a cluster."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The scheduler, and where the account lives."""
        parser.add_argument("--flavour", choices=sorted(FLAVOURS), default="kube")
        parser.add_argument(
            "--beside",
            choices=sorted(FLAVOURS),
            default="",
            help="a second scheduler, during a switch of schedulers",
        )
        parser.add_argument("--namespace", default=NAMESPACE)
        parser.add_argument("--account", default=ACCOUNT)
        parser.add_argument(
            "--guard",
            action="store_true",
            help="also a policy that limits the account to Rung's objects (Kubernetes 1.30 or later)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """YAML, with the commands for a token as comments."""
        wanted = {name: options[name] for name in ("beside", "namespace", "account", "guard")}
        self.stdout.write(as_yaml(options["flavour"], **wanted), ending="")
