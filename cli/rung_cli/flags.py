"""Flags that several commands share, and what may stand on a command line at all."""

from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from rung_cli import completions
from rung_cli.errors import UsageError
from rung_cli.output.formats import Format

OutputFlag = Annotated[Format | None, typer.Option("--output", "-o", help="Output format.")]
ProjectFlag = Annotated[
    str,
    typer.Option(
        "--project",
        "-p",
        help="Project name or id; default: RUNG_PROJECT, then the profile's.",
        autocompletion=completions.project_names,
    ),
]
ClusterFlag = Annotated[
    str, typer.Option("--cluster", help="Only this cluster.", autocompletion=completions.cluster_names)
]
Workload = Annotated[
    str,
    typer.Argument(metavar="WORKLOAD", help="Name, project/name or id.", autocompletion=completions.workload_names),
]
Workloads = Annotated[
    list[str],
    typer.Argument(
        metavar="WORKLOAD...", help="Names, project/name or ids.", autocompletion=completions.workload_names
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
ManifestFlag = Annotated[
    list[str] | None, typer.Option("--file", "-f", metavar="FILE", help="Manifest in YAML or JSON; - is stdin.")
]

SECRETS: Final = frozenset(
    {"--secret", "--client-secret", "--clientsecret", "--app-secret", "--password", "--token", "--bearer-token"}
)
UNCHECKED: Final = frozenset({"-k", "--insecure", "--no-verify", "--insecure-skip-tls-verify", "--skip-tls-verify"})
IN_ARGV: Final = (
    "Secrets cannot be passed as arguments: other users of this machine can read them, and the shell stores them. "
    "Rotate the secret you just typed."
)
WAYS: Final = "Enter it when rung login prompts, pipe it into rung login --secret-stdin, or set RUNG_CLIENT_SECRET."


def check_arguments(args: list[str]) -> None:
    """UsageError for a secret among the arguments, which is not repeated, and for leaving certificates unchecked."""
    for each in args:
        name = each.partition("=")[0]
        if name.lower() in SECRETS:
            raise UsageError(IN_ARGV, hint=WAYS)
        if name in UNCHECKED:
            text = f"{name} does not exist: certificates are always verified."
            raise UsageError(text, hint="Set the certificate authority with --ca-file FILE or RUNG_CA_FILE.")


class Root(TyperGroup):
    """`rung` itself: its own options may stand anywhere before `--`; alone it prints its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse what is unsafe, then put the root's options first."""
        if not args and not ctx.resilient_parsing:
            args = ["--help"]
        end = args.index("--") if "--" in args else len(args)
        own, rest = args[:end], args[end:]
        own = self._hoisted(own)
        if not ctx.resilient_parsing:
            check_arguments(own)
            if "submit" in own:
                ctx.obj.tail, rest = tuple(rest[1:]), []
        parsed: list[str] = super().parse_args(ctx, own + rest)
        return parsed

    def _hoisted(self, args: list[str]) -> list[str]:
        own = [each for each in self.params if each.name != "version"]
        takes = {name: not getattr(each, "is_flag", False) for each in own for name in each.opts}
        front, back, waiting = [], [], iter(args)
        for each in waiting:
            name, equals, _value = each.partition("=")
            if name not in takes:
                back.append(each)
                continue
            front.append(each)
            if takes[name] and not equals and (value := next(waiting, None)) is not None:
                front.append(value)
        return front + back
