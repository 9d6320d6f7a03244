"""The manual as Markdown, made of the commands themselves: `python -m rung_cli.manual > docs/cli.md`."""

import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from typer.main import get_command

from rung_cli.errors import MEANINGS
from rung_cli.main import app

HEAD: Final = """# The command line

`rung` submits, watches and explains workloads from a terminal or a pipeline. Installation, sign-in and
configuration: [cli/README.md](../cli/README.md). This page is generated from the commands
(`python -m rung_cli.manual > docs/cli.md`); a test compares both.

The global options can be used before or after the command. Name a workload by its name in the current project, by
`project/name`, or by its id.
"""


def manual() -> str:
    """The whole text."""
    root: Any = get_command(app)
    context = root.make_context("rung", [], resilient_parsing=True)
    return "\n".join([HEAD, _exit_codes(), *_sections("rung", root, context)])


def _sections(title: str, command: Any, context: Any) -> Iterator[str]:
    """Of a command, and of those within it."""
    yield _section(title, command, context)
    for name, each in getattr(command, "commands", {}).items():
        yield from _sections(
            f"{title} {name}", each, each.make_context(name, [], parent=context, resilient_parsing=True)
        )


def _exit_codes() -> str:
    rows = [f"| {code.value} | {text} |" for code, text in MEANINGS.items()]
    return "\n".join(["## Exit codes", "", "| code | meaning |", "|---|---|", *rows, ""])


def _section(title: str, command: Any, context: Any) -> str:
    """Usage, what it does, every argument and flag."""
    usage = " ".join(command.collect_usage_pieces(context))
    text = re.sub(r"\n{3,}", "\n\n", (command.help or "").strip())
    lines = [f"## {title}", "", "```", f"{title} {usage}", "```", "", text, ""]
    records = list(_records(command, context))
    if records:
        lines += ["| | |", "|---|---|", *(f"| `{left}` | {right} |" for left, right in records), ""]
    return "\n".join(lines)


def _records(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    for each in command.get_params(context):
        record = each.get_help_record(context)
        if record and "--help" not in each.opts:
            left, right = (" ".join(part.split()).replace("|", "\\|") for part in record)
            yield left, right


if __name__ == "__main__":
    sys.stdout.write(manual())
