"""Print which guarantees each scheduler gives, as Markdown."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from clusters.flavours.registry import FLAVOURS, guarantees_as_markdown, replace_generated_part

FILE = Path(__file__).parents[3] / "docs" / "schedulers.md"


class Command(BaseCommand):
    """`manage.py scheduler_guarantees` prints the table; `--write` puts it into docs/schedulers.md."""

    requires_system_checks = []  # text only: it needs no secret and no database
    help = "Print which guarantees each scheduler gives."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--write", action="store_true", help="update docs/schedulers.md")

    def handle(self, *args: Any, **options: Any) -> None:
        """The flavours' own words, nothing else."""
        if not options["write"]:
            self.stdout.write(guarantees_as_markdown(FLAVOURS))
            return
        try:
            FILE.write_text(replace_generated_part(FILE.read_text(encoding="utf-8"), FLAVOURS), encoding="utf-8")
        except (OSError, ValueError) as error:
            raise CommandError(f"docs/schedulers.md is not writable: {error}") from error
