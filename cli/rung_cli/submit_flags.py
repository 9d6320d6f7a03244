"""The flags of `rung submit`, named as Run:ai's command line names them, with shorter names beside."""

from typing import Annotated

import typer

from rung_cli.native_submit import Framework, SubmissionKind

Name = Annotated[str, typer.Option("--name", help="Of the workload; the same as NAME.")]
Called = Annotated[str, typer.Argument(metavar="[NAME]", help="Of the workload.")]
NamePrefix = Annotated[str, typer.Option(help="Begin of a name that the server completes.")]
Type = Annotated[
    SubmissionKind | None, typer.Option("--type", help="Of the workload; when absent as the template, else training.")
]
Template = Annotated[
    str, typer.Option("--template", "-t", metavar="TEMPLATE", help="By name or id: it says what the flags leave out.")
]
Image = Annotated[str, typer.Option("--image", "-i", help="Container image.")]
Priority = Annotated[str, typer.Option(help="Beats the manifest's label and the type's default.")]
Preemptibility = Annotated[str, typer.Option(help="preemptible, semi-preemptible or non-preemptible.")]
Gpus = Annotated[int | None, typer.Option("--gpus", "-g", "--gpu-devices-request", min=0, help="Whole GPUs.")]
GpuPortion = Annotated[
    float | None, typer.Option("--gpu-portion", "--gpu-portion-request", help="Part of one GPU, such as 0.5.")
]
GpuMemory = Annotated[str, typer.Option("--gpu-memory", "--gpu-memory-request", help="Of one GPU, such as 20G.")]
Cpu = Annotated[float | None, typer.Option("--cpu", "--cpu-core-request", min=0, help="CPU cores.")]
Memory = Annotated[str, typer.Option("--memory", "--cpu-memory-request", help="Such as 16G.")]
LargeShm = Annotated[bool, typer.Option("--large-shm", "--large-shm-request", help="A large /dev/shm.")]
Environment = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", "--environment", "--environment-variable", help="NAME=VALUE, or NAME as it is here."),
]
NodePool = Annotated[
    list[str] | None, typer.Option("--node-pool", "--node-pools", help="In order of preference; repeat it.")
]
WorkingDir = Annotated[str, typer.Option(help="Where the command starts.")]
Command = Annotated[bool, typer.Option("--command", help="What stands after -- replaces the image's entrypoint.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Of a distributed training.")]
FrameworkFlag = Annotated[Framework | None, typer.Option("--framework", help="Of a distributed training.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="That an inference answers on.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Validate and foretell; submit nothing.")]
IdempotencyKey = Annotated[
    str, typer.Option(help="A word of yours: the same command run again under it submits nothing twice.")
]
