"""Refusals of the model in people's words, with their numbers. Pure."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from scheduling.reasons import Pend, Reason
from scheduling.resources import Resources, decimal_text

GIB: Final = 2**30
LEAST_IN_HOURS: Final = 360  # GPU-seconds: a tenth of a GPU-hour


def amount_text(amount: Resources) -> str:
    """ "8 GPUs", or the largest other thing that is asked for."""
    if amount.gpu:
        return gpus_text(amount.gpu)
    return str(amount)


def gpus_text(milli: int) -> str:
    """ "1 GPU", "0.5 GPUs"."""
    text = decimal_text(milli)
    return f"{text} GPU" if text == "1" else f"{text} GPUs"


def gpu_time_text(gpu_seconds: float) -> str:
    """ "1.6 GPU-hours"; below a tenth of one in minutes, "1.6 GPU-minutes"."""
    if gpu_seconds >= LEAST_IN_HOURS:
        return f"{gpu_seconds / 3600:.1f} GPU-hours"
    return f"{round(gpu_seconds / 60, 1):g} GPU-minutes"


def duration_text(span: timedelta) -> str:
    """ "5 h 40 m", "14 min", "30 s"."""
    seconds = max(0, int(span.total_seconds()))
    days, hours, minutes = seconds // 86400, seconds % 86400 // 3600, seconds % 3600 // 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} m"
    return f"{minutes} min" if minutes else f"{seconds} s"


def pend_sentence(pend: Pend, *, pool: str, labels: Mapping[str, str]) -> str:
    """Why it waits, as the rest of a sentence that begins with "it"."""
    needed, who = amount_text(pend.needed), labels.get(pend.queue or "", pend.queue or "its queue")
    short = _SHORT.get(pend.reason)
    if short:
        return short.format(pool=pool)
    if pend.reason is Reason.NON_PREEMPTIBLE_OVER_QUOTA:
        left = _left(pend)
        return (
            f"needs {needed} in {pool}; {left} of the {_allowed(pend)} that {who} deserves "
            f"{'is' if left == '1' else 'are'} free, and non-preemptible work may not go over quota"
        )
    if pend.reason is Reason.OVER_LIMIT:
        return f"needs {needed} in {pool}; {who} holds {amount_text(pend.used)} of its limit of {_allowed(pend)}"
    if pend.reason is Reason.NEVER_FITS:
        return f"needs {needed}, more than {pool} could ever give: {_largest(pend)}"
    if pend.reason is Reason.EXCEEDS_MAX_QUOTA:
        return f"needs {needed} in {pool}; {who} can have at most {_allowed(pend)} there, borrowed ones included"
    if pend.reason is Reason.WAITING_FOR_QUOTA:
        return f"needs {needed} in {pool}; of quota {who} has {_unused(pend)} free, and {_spared(pend)}"
    if pend.topology is not None:
        return f"needs {needed} on nodes of {pool} with one value of {pend.topology}; {_in_domains(pend)}"
    because = _BECAUSE.get(pend.reason, "nothing there may be evicted for it")
    return f"needs {needed} in {pool}; {_free(pend)}, and {because}"


_BECAUSE: Final = {Reason.PREEMPTION_NEVER: "its priority evicts nobody"}

_SHORT: Final = {
    Reason.NO_SUCH_POOL: "waits for the node pool {pool}, which has no nodes",
    Reason.QUEUE_MISSING: "waits for its queue in {pool}, which is not in the cluster yet",
    Reason.GANG_INCOMPLETE: "waits until enough of its pods exist",
    Reason.EVICTING: "has its place in {pool}: it waits for the evicted to leave",
}


def _allowed(pend: Pend) -> str:
    bound = pend.allowed
    if pend.missing.gpu or not (pend.missing.cpu or pend.missing.memory):
        return gpus_text(bound.gpu or 0)
    return str(bound)


def _left(pend: Pend) -> str:
    """What is left of the bound in the dimension that says no."""
    if pend.missing.gpu or not (pend.missing.cpu or pend.missing.memory):
        return decimal_text(max((pend.allowed.gpu or 0) - pend.used.gpu, 0))
    if pend.missing.cpu:
        return f"{decimal_text(max((pend.allowed.cpu or 0) - pend.used.cpu, 0))} CPU"
    return f"{decimal_text(max((pend.allowed.memory or 0) - pend.used.memory, 0), GIB)} GiB"


def _unused(pend: Pend) -> str:
    """What of the quota is free: what is asked for without what is missing."""
    return amount_text(pend.needed - pend.missing)


def _spared(pend: Pend) -> str:
    """Why nobody is evicted for it."""
    if Reason.LARGER_THAN_DESERVED in pend.also:
        return f"nobody is evicted for a request above the {_allowed(pend)} that it deserves"
    return "nobody there may be evicted for it"


def _free(pend: Pend) -> str:
    if pend.needed.gpu:
        return f"{gpus_text(pend.free.gpu)} free, at most {decimal_text(pend.largest_free.gpu)} on one node"
    return f"{pend.free} free"


def _in_domains(pend: Pend) -> str:
    """What is free, and how much of it close together."""
    if not pend.domain:
        return "no ready node carries it"
    held = gpus_text(pend.largest_domain.gpu) if pend.needed.gpu else str(pend.largest_domain)
    never = "no value has so much even when all of its nodes are empty"
    because = never if Reason.NEVER_FITS in pend.also else "nobody is evicted for it"
    free = gpus_text(pend.free.gpu) if pend.needed.gpu else str(pend.free)
    return f"{free} free, at most {held} with one value ({pend.domain}), and {because}"


def _largest(pend: Pend) -> str:
    return f"{gpus_text(pend.free.gpu)} in all, {decimal_text(pend.largest_free.gpu)} on its largest node"
