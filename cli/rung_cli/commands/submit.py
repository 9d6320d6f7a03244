"""`submit` and `explain`: manifests and flags on their way to the server, and what it says to them."""

import re
from typing import Annotated, Final

import typer

from rung_cli import submit_flags
from rung_cli.errors import UsageError
from rung_cli.flags import ManifestFlag, OutputFlag, ProjectFlag
from rung_cli.lookup import project as find_project
from rung_cli.manifests.documents import read_documents
from rung_cli.manifests.submission import ManifestSubmission
from rung_cli.native_submit import NativeWorkload, submit_native
from rung_cli.output.submission import show_explained, show_submitted
from rung_cli.session import session
from rung_cli.workload_templates import find as find_template

_KEY: Final = re.compile(r"[!-~]{1,180}")


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command()(submit)
    app.command()(explain)


def submit(
    ctx: typer.Context,
    called: submit_flags.Called = "",
    *,
    project: ProjectFlag = "",
    file: ManifestFlag = None,
    name: submit_flags.Name = "",
    name_prefix: submit_flags.NamePrefix = "",
    template: submit_flags.Template = "",
    kind: submit_flags.Type = None,
    image: submit_flags.Image = "",
    priority: submit_flags.Priority = "",
    preemptibility: submit_flags.Preemptibility = "",
    gpus: submit_flags.Gpus = None,
    gpu_portion: submit_flags.GpuPortion = None,
    gpu_memory: submit_flags.GpuMemory = "",
    cpu: submit_flags.Cpu = None,
    memory: submit_flags.Memory = "",
    large_shm: submit_flags.LargeShm = False,
    env: submit_flags.Environment = None,
    node_pool: submit_flags.NodePool = None,
    working_dir: submit_flags.WorkingDir = "",
    command: submit_flags.Command = False,
    workers: submit_flags.Workers = None,
    framework: submit_flags.FrameworkFlag = None,
    port: submit_flags.Port = None,
    dry_run: submit_flags.DryRun = False,
    idempotency_key: submit_flags.IdempotencyKey = "",
    output: OutputFlag = None,
) -> None:
    """Submit a workload from flags, or every workload of manifests: -f FILE, or -f - for stdin.

    rung submit train -i IMAGE -g 8 --priority high -- python train.py

    Several manifests are all validated before the first one is submitted. Text shows a forecast made before that.
    """
    held = session(ctx)
    out, named, key = held.output(output), _one_name(called, name), _checked(idempotency_key)
    wanted = NativeWorkload.from_flags(ctx.params, held.tail)
    if file:
        wanted.refuse_beside_a_manifest(template)
        explicit = {"name": named, "priority": priority, "preemptibility": preemptibility}
        read, owner = read_documents(file), find_project(held.api, held.project(project))
        made = ManifestSubmission(held.api, read, owner, explicit, key, out.format).submit(dry_run=dry_run)
    else:
        wanted.refuse_incomplete(named or name_prefix, template)
        owner = find_project(held.api, held.project(project))
        wanted = wanted.starting_from(find_template(held.api, template, owner, kind)) if template else wanted
        made = [submit_native(held.api, wanted, (named, name_prefix), owner, key=key, dry_run=dry_run, form=out.format)]
    show_submitted(out, made, project=owner["name"], dry_run=dry_run)


def explain(
    ctx: typer.Context,
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE...]", help="Manifest files; - is stdin.")] = None,
    *,
    file: ManifestFlag = None,
    project: ProjectFlag = "",
    priority: submit_flags.Priority = "",
    preemptibility: submit_flags.Preemptibility = "",
    output: OutputFlag = None,
) -> None:
    """Preview manifests without submitting them.

    Shows effective priority and preemptibility with their sources, ignored values, evicted workloads
    and alternatives. Exit code 1 if any manifest would be rejected.

    rung explain job.yaml -p llm-team --priority high
    """
    held = session(ctx)
    out = held.output(output)
    documents = read_documents([*(files or ()), *(file or ())] or ["-"])
    explicit = {"priority": priority, "preemptibility": preemptibility}
    owner = find_project(held.api, held.project(project))
    answers = ManifestSubmission(held.api, documents, owner, explicit, format=out.format).explain()
    show_explained(out, list(zip(map(str, documents), answers, strict=True)))


def _one_name(called: str, name: str) -> str:
    if called and name and called != name:
        raise UsageError(f"Two different names: {called} and {name}.")
    return called or name


def _checked(key: str) -> str:
    if key and not _KEY.fullmatch(key):
        raise UsageError("An idempotency key must have 1 to 180 printable ASCII characters without spaces.")
    return key
