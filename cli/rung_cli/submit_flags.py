"""The flags of `rung submit`, named as Run:ai's command line names them, with shorter names beside."""

from typing import Annotated

import typer

from rung_cli import completions
from rung_cli.native_submit import Framework, SubmissionKind

Name = Annotated[str, typer.Option("--name", help="Workload name; same as NAME.")]
Called = Annotated[str, typer.Argument(metavar="[NAME]", help="Workload type.")]
NamePrefix = Annotated[str, typer.Option(help="Name prefix; the server completes the name.")]
Type = Annotated[
    SubmissionKind | None, typer.Option("--type", help="Workload type; default: that of the template, else training.")
]
Template = Annotated[
    str,
    typer.Option(
        "--template",
        "-t",
        metavar="TEMPLATE",
        help="Template name or id. It sets values that the flags omit.",
        autocompletion=completions.template_names,
    ),
]
Image = Annotated[str, typer.Option("--image", "-i", help="Container image.")]
Priority = Annotated[
    str,
    typer.Option(help="Beats manifest label and type default.", autocompletion=completions.priority_names),
]
Preemptibility = Annotated[
    str,
    typer.Option(help="preemptible, semi-preemptible or non-preemptible.", autocompletion=completions.preemptibilities),
]
Gpus = Annotated[int | None, typer.Option("--gpus", "-g", "--gpu-devices-request", min=0, help="Whole GPUs per pod.")]
GpuPortion = Annotated[
    float | None, typer.Option("--gpu-portion", "--gpu-portion-request", help="Fraction of a GPU, such as 0.5.")
]
# No scheduler that Rung supports divides a GPU by its memory: who knows the flag of Run:ai is refused with the reason.
GpuMemory = Annotated[str, typer.Option("--gpu-memory", "--gpu-memory-request", hidden=True)]
Cpu = Annotated[float | None, typer.Option("--cpu", "--cpu-core-request", min=0, help="CPU cores.")]
Memory = Annotated[str, typer.Option("--memory", "--cpu-memory-request", help="Memory, such as 16G.")]
LargeShm = Annotated[bool, typer.Option("--large-shm", "--large-shm-request", help="Use a large /dev/shm.")]
Environment = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        "-e",
        "--environment",
        "--environment-variable",
        help="NAME=VALUE, or NAME to copy it from the environment.",
    ),
]
NodePool = Annotated[
    list[str] | None,
    typer.Option(
        "--node-pool",
        "--node-pools",
        help="Node pool, in order of preference. Can be repeated.",
        autocompletion=completions.pool_names,
    ),
]
WorkingDir = Annotated[str, typer.Option(help="Working directory.")]
Command = Annotated[bool, typer.Option("--command", help="The arguments after -- replace the image's entrypoint.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Workers of a distributed training, beside its master, which has the same GPUs. MPI: its launcher has "
        "none. JAX: no master.",
    ),
]
FrameworkFlag = Annotated[Framework | None, typer.Option("--framework", help="Framework of a distributed training.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Port that the inference server listens on.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Validate and show a forecast without submitting.")]
IdempotencyKey = Annotated[
    str, typer.Option(help="Idempotency key: repeating the command with the same key submits only once.")
]
