"""`submit` and `explain`: manifests and flags on their way to the server, and what it says to them."""

import re
from typing import Annotated, Final

import typer

from rung_cli import submit_flags as flags
from rung_cli.commands.submitted import show_explained, show_submitted
from rung_cli.documents import read_documents
from rung_cli.errors import Misused
from rung_cli.flags import ManifestFlag, OutputFlag, ProjectFlag
from rung_cli.manifests import Manifests
from rung_cli.naming import project as find_project
from rung_cli.natively import Wanted, submitted_natively
from rung_cli.session import session
from rung_cli.templates import find as find_template

_KEY: Final = re.compile(r"[!-~]{1,180}")


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command()(submit)
    app.command()(explain)


def submit(
    ctx: typer.Context,
    called: flags.Called = "",
    *,
    project: ProjectFlag = "",
    file: ManifestFlag = None,
    name: flags.Name = "",
    name_prefix: flags.NamePrefix = "",
    template: flags.Template = "",
    kind: flags.Type = None,
    image: flags.Image = "",
    priority: flags.Priority = "",
    preemptibility: flags.Preemptibility = "",
    gpus: flags.Gpus = None,
    gpu_portion: flags.GpuPortion = None,
    gpu_memory: flags.GpuMemory = "",
    cpu: flags.Cpu = None,
    memory: flags.Memory = "",
    large_shm: flags.LargeShm = False,
    env: flags.Environment = None,
    node_pool: flags.NodePool = None,
    working_dir: flags.WorkingDir = "",
    command: flags.Command = False,
    workers: flags.Workers = None,
    framework: flags.FrameworkFlag = None,
    port: flags.Port = None,
    dry_run: flags.DryRun = False,
    idempotency_key: flags.IdempotencyKey = "",
    output: OutputFlag = None,
) -> None:
    """Submit a workload from flags, or every workload of manifests: -f FILE, or -f - for stdin.

    rung submit train -i IMAGE -g 8 --priority high -- python train.py

    Several manifests are all rehearsed before the first one is submitted.
    """
    held = session(ctx)
    out, named, key = held.output(output), _one_name(called, name), _checked(idempotency_key)
    wanted = Wanted.from_flags(ctx.params, held.tail)
    if file:
        wanted.refuse_beside_a_manifest(template)
        explicit = {"name": named, "priority": priority, "preemptibility": preemptibility}
        read, owner = read_documents(file), find_project(held.api, held.project(project))
        made = Manifests(held.api, read, owner, explicit, key, out.format).submit(dry_run=dry_run)
    else:
        wanted.refuse_incomplete(named or name_prefix, template)
        owner = find_project(held.api, held.project(project))
        wanted = wanted.starting_from(find_template(held.api, template, owner, kind)) if template else wanted
        made = [submitted_natively(held.api, wanted, (named, name_prefix), owner, key=key, dry_run=dry_run)]
    show_submitted(out, made, project=owner["name"], dry_run=dry_run)


def explain(
    ctx: typer.Context,
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE...]", help="Manifests; - is stdin.")] = None,
    *,
    file: ManifestFlag = None,
    project: ProjectFlag = "",
    priority: flags.Priority = "",
    preemptibility: flags.Preemptibility = "",
    output: OutputFlag = None,
) -> None:
    """Say what manifests would become and what would happen to them, without submitting.

    Effective priority and preemptibility with their sources, what would not be used, who would be evicted,
    and what would do better. Ends with 1 if any of them would be refused.
    """
    held = session(ctx)
    out = held.output(output)
    documents = read_documents([*(files or ()), *(file or ())] or ["-"])
    explicit = {"priority": priority, "preemptibility": preemptibility}
    owner = find_project(held.api, held.project(project))
    answers = Manifests(held.api, documents, owner, explicit, format=out.format).explain()
    show_explained(out, list(zip(map(str, documents), answers, strict=True)))


def _one_name(called: str, name: str) -> str:
    if called and name and called != name:
        raise Misused(f"Two names: {called} and {name}.")
    return called or name


def _checked(key: str) -> str:
    if key and not _KEY.fullmatch(key):
        raise Misused("An idempotency key is 1 to 180 printable ASCII characters without spaces.")
    return key
