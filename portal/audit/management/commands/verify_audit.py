"""`manage.py verify_audit [--expect FILE]`: prints the heads as JSON; exit code 1 if a chain is broken."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.audit.verification import heads, verify


class Command(BaseCommand):
    """Check every record of the audit trail."""

    help = "Check the audit trail and print its heads; --expect compares with heads that were printed earlier."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The anchor kept outside of the database."""
        parser.add_argument("--expect", type=Path, help="File with the heads an earlier run printed.")

    def handle(self, *args: Any, expect: Path | None, **options: Any) -> None:
        """Print heads to standard output, breaks to standard error."""
        expected = {number: (int(n), str(digest)) for number, (n, digest) in self._read(expect).items()}
        breaks = verify(expected)
        self.stdout.write(json.dumps(heads()))
        for found in breaks:
            self.stderr.write(str(found))
        if breaks:
            raise CommandError(f"The audit trail is broken in {len(breaks)} place(s).")

    def _read(self, file: Path | None) -> dict[str, Any]:
        return json.loads(file.read_text()) if file else {}
