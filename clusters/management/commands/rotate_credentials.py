"""Seals the stored credentials of clusters under the newest key."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from clusters.connection.services.gateways import rotate_credentials
from portal.kit.security.actors import SYSTEM, Actor, Channel
from portal.kit.security.encryption import NoEncryptionKey, new_key

OPERATOR = Actor(SYSTEM.kind, SYSTEM.id, SYSTEM.name, Channel.COMMAND)


class Command(BaseCommand):
    """`manage.py rotate_credentials`, after a new key was put before the others in RUNG_CREDENTIAL_KEYS."""

    help = "Re-encrypt stored cluster credentials with the first key of RUNG_CREDENTIAL_KEYS."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Or only make a key."""
        parser.add_argument("--new-key", action="store_true", help="only print a new key; changes nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        """The counts; exit code 1 while some credential does not open."""
        if options["new_key"]:
            self.stdout.write(new_key())
            return
        try:
            done = rotate_credentials(actor=OPERATOR)
        except (NoEncryptionKey, ValueError) as error:
            raise CommandError(f"RUNG_CREDENTIAL_KEYS has no usable key: {error}") from error
        self.stdout.write(
            f"{done.renewed} re-encrypted, {done.current} already current, {done.broken} cannot be decrypted."
        )
        if done.broken:
            raise CommandError("Enter those credentials again, or restore the key that encrypted them.")
