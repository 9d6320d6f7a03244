"""`completion`: a script for the shell."""

import sys
from typing import Annotated

import typer
from typer._completion_shared import Shells, get_completion_script


def register(app: typer.Typer) -> None:
    """Add it."""
    app.command()(completion)


def completion(shell: Annotated[Shells, typer.Argument(help="Name of the shell.")]) -> None:
    """Print the shell completion script.

    bash: source <(rung completion bash). fish: rung completion fish | source.
    """
    script = get_completion_script(prog_name="rung", complete_var="_RUNG_COMPLETE", shell=shell.value)
    sys.stdout.write(f"{script}\n")
