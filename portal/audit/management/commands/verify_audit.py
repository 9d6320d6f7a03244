"""`manage.py verify_audit [--checkpoints FILE]`: exit code 1 if a sealed record was changed, removed or moved.

Without checkpoints it fails too: records that were cut from the end together with the head leave no other trace.
"""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from portal.audit.chain import read_checkpoints, verify
from portal.audit.models import AuditChain, AuditRecord

MOST_NAMED = 100


class Command(BaseCommand):
    """Check every sealed record of the audit trail and name those that are not sealed yet."""

    help = (
        "Verify the audit trail against its hash chain and checkpoints. Print the head and the number of "
        "unsealed records."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        default = settings.RUNG_AUDIT_CHECKPOINTS
        source = parser.add_mutually_exclusive_group()
        source.add_argument("--checkpoints", type=Path, action="append", help=f"Checkpoint file (default: {default}).")
        source.add_argument("--no-checkpoints", action="store_true", help="Verify the database alone.")

    def handle(self, *args: Any, checkpoints: list[Path] | None, no_checkpoints: bool, **options: Any) -> None:
        """Print the head and unsealed records to standard output, breaks to standard error."""
        files = [] if no_checkpoints else checkpoints or self._default()
        try:
            breaks = verify(line for file in files for line in read_checkpoints(file))
        except (OSError, ValueError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(self._state()))
        for found in breaks:
            self.stderr.write(str(found))
        if breaks:
            raise CommandError(f"The audit trail is broken in {len(breaks)} place(s).")

    def _default(self) -> list[Path]:
        file = Path(settings.RUNG_AUDIT_CHECKPOINTS)
        if AuditChain.objects.filter(length__gt=0).exists() and not file.exists():
            raise CommandError(
                f"No checkpoints at {file}, although records are sealed: whether records were cut from the end cannot "
                "be verified. Name the file with --checkpoints, or verify the database alone with --no-checkpoints."
            )
        return [file] if file.exists() else []

    def _state(self) -> dict[str, Any]:
        chain = AuditChain.objects.first() or AuditChain()
        unsealed = AuditRecord.objects.filter(sealed_seq=None)
        ids = list(unsealed.order_by("pk").values_list("pk", flat=True)[:MOST_NAMED])
        return {"sealed": chain.length, "digest": chain.head, "unsealed": unsealed.count(), "unsealed_ids": ids}
