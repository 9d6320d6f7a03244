"""`completion`: a script for the shell."""

import sys
from typing import Annotated

import typer
from typer._completion_shared import Shells, get_completion_script


def register(app: typer.Typer) -> None:
    """Add it."""
    app.command()(completion)


def completion(shell: Annotated[Shells, typer.Argument(help="Name of the shell.")]) -> None:
    """Print the shell completion script. It completes commands, flags, and names of the portal.

    bash: echo 'source <(rung completion bash)' >> ~/.bashrc

    zsh: echo 'source <(rung completion zsh)' >> ~/.zshrc, after compinit

    fish: rung completion fish > ~/.config/fish/completions/rung.fish
    """
    script = get_completion_script(prog_name="rung", complete_var="_RUNG_COMPLETE", shell=shell.value)
    sys.stdout.write(f"{script}\n")
