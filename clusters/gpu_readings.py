"""What a metrics server says of GPUs. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuReading:
    """How busy the busiest GPU of a pod is, in percent, rounded up: 0 means that all of them do nothing."""

    namespace: str
    pod: str
    percent: int
