"""`manage.py verify_audit [--checkpoints FILE]`: exit code 1 if a sealed record was changed, removed or moved."""

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
        parser.add_argument("--checkpoints", type=Path, action="append", help=f"Checkpoint file (default: {default}).")

    def handle(self, *args: Any, checkpoints: list[Path] | None, **options: Any) -> None:
        """Print the head and unsealed records to standard output, breaks to standard error."""
        try:
            breaks = verify(line for file in checkpoints or self._default() for line in read_checkpoints(file))
        except (OSError, ValueError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(self._state()))
        for found in breaks:
            self.stderr.write(str(found))
        if breaks:
            raise CommandError(f"The audit trail is broken in {len(breaks)} place(s).")

    def _default(self) -> list[Path]:
        file = Path(settings.RUNG_AUDIT_CHECKPOINTS)
        if file.exists():
            return [file]
        self.stderr.write(f"No checkpoints at {file}: records cut from the end together with the head do not show.")
        return []

    def _state(self) -> dict[str, Any]:
        chain = AuditChain.objects.first() or AuditChain()
        unsealed = AuditRecord.objects.filter(sealed_seq=None)
        ids = list(unsealed.order_by("pk").values_list("pk", flat=True)[:MOST_NAMED])
        return {"sealed": chain.length, "digest": chain.head, "unsealed": unsealed.count(), "unsealed_ids": ids}
