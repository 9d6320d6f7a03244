"""Shell completion: its script, and the names that it asks of the portal, quickly and silently."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from io import StringIO
from typing import Annotated, Any, Final

import typer
from typer._completion_shared import Shells, get_completion_script

from rung_cli.config import profiles
from rung_cli.output.units import PHASE_WORDS
from rung_cli.session import Options, Session

PATIENCE: Final = 5.0
"""Seconds that a person who pressed Tab waits at the longest for one answer."""
MOST: Final = 100
PREEMPTIBILITIES: Final = ("preemptible", "semi-preemptible", "non-preemptible")
Rows = Iterable[Mapping[str, Any]]


def project_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Projects that the caller sees."""
    return _names(ctx, incomplete, lambda held: _called(_page(held, "v1/org-unit/projects", "projects", incomplete)))


def department_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Departments that the caller sees."""
    path = "v1/org-unit/departments"
    return _names(ctx, incomplete, lambda held: _called(_page(held, path, "departments", incomplete)))


def workload_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Workloads of the project at hand, or of all; with a slash as `project/name`."""
    owner, slash, name = incomplete.rpartition("/")

    def ask(held: Session) -> Iterable[str]:
        project = owner or held.project(str(ctx.params.get("project") or ""))
        clauses = [f"name=^{name}"] if name else []
        clauses += [f"projectName=={project}"] if project else []
        found = held.api.get("v1/workloads", filterBy=",".join(clauses), limit=MOST)["workloads"]
        return [f"{owner}{slash}{each['name']}" for each in found]

    return _names(ctx, incomplete, ask)


def priority_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Of the dictionary."""
    return _names(ctx, incomplete, lambda held: _called(held.api.get("v1/workload-priorities")["priorities"]))


def type_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Workload types."""
    return _names(ctx, incomplete, lambda held: _called(held.api.get("v1/workload-types")["types"]))


def cluster_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Clusters by name."""
    return _names(ctx, incomplete, lambda held: _called(held.api.get("v1/clusters", verbosity="metadata")))


def pool_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Node pools of every cluster."""
    return _names(ctx, incomplete, lambda held: _called(_page(held, "v1/node-pools", "nodepools", incomplete)))


def template_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Workload templates of every scope that the caller sees."""

    def ask(held: Session) -> Iterable[str]:
        found = held.api.get("v1/workload-templates", search=incomplete, limit=MOST)["entries"]
        return [str(each["meta"]["name"]) for each in found]

    return _names(ctx, incomplete, ask)


def report_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The caller's reports."""
    return _names(ctx, incomplete, lambda held: _called(_page(held, "v1/org-unit/reports", "reports", incomplete)))


def profile_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Of the configuration; nothing is asked of a portal."""
    return _names(ctx, incomplete, lambda _held: profiles.load().profiles)


def phase_names(incomplete: str) -> list[str]:
    """Phases of workloads."""
    return _starting(PHASE_WORDS, incomplete)


def preemptibilities(incomplete: str) -> list[str]:
    """The three that Rung knows."""
    return _starting(PREEMPTIBILITIES, incomplete)


def words(known: Sequence[str]) -> Callable[[str], list[str]]:
    """A completion by a fixed list."""

    def complete(incomplete: str) -> list[str]:
        return _starting(known, incomplete)

    return complete


def _page(held: Session, path: str, name: str, start: str) -> Rows:
    """The first rows whose name starts so."""
    query = {"filterBy": f"name=^{start}"} if start else {}
    found: Rows = held.api.get(path, **query, limit=MOST)[name]
    return found


def _called(rows: Rows) -> list[str]:
    return [str(each["name"]) for each in rows]


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return list(dict.fromkeys(each for each in names if each.startswith(incomplete)))


def _names(ctx: typer.Context, incomplete: str, ask: Callable[[Session], Iterable[str]]) -> list[str]:
    """Print nothing on errors: the output would appear inside the command line that is being typed."""
    held = _session(ctx)
    with redirect_stderr(StringIO()):
        try:
            return _starting(ask(held), incomplete)
        except Exception:
            return []
        finally:
            held.close()


def _session(ctx: typer.Context) -> Session:
    """With the root's options as they stand on the unfinished line; one try, and no long wait."""
    given: Mapping[str, Any] = ctx.find_root().params
    profile, url, ca_file = (str(given.get(name) or "") for name in ("profile", "url", "ca_file"))
    insecure_http = bool(given.get("insecure_http"))
    return Session(Options(profile, url, ca_file, insecure_http, retries=0, timeout=PATIENCE))


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
