"""What people are asked before something ends: what it holds, and what has not been saved."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils import timezone
from django.utils.translation import gettext as _

from portal.core.actors import Actor
from portal.core.display import duration_text, gpus_text
from workloads.lifecycle import ENDED, STOPPABLE
from workloads.models import DesiredPhase, Workload
from workloads.permissions import may_manage
from workloads.selectors.life import saved_at, unsaved_gpu_seconds
from workloads.sentences import gpu_time_text


@dataclass(frozen=True, slots=True)
class Ending:
    """One of several workloads that are to end. lost: GPU time that it has not saved; ends: something of it will."""

    workload: Workload
    said: str
    lost: str = ""
    ends: bool = False


def before_delete(workload: Workload) -> str:
    """`Delete “llm-finetune”? It is running on 8 GPUs and has not saved a checkpoint for 2 h.`"""
    return f"{_('Delete “%(name)s”?') % {'name': workload.name}} {_cost(workload)}".strip()


def before_stop(workload: Workload) -> str:
    """The same for a stop, which can be taken back by resuming."""
    asked = _("Stop “%(name)s”? It can be resumed.") % {"name": workload.name}
    return f"{asked} {_cost(workload)}".strip()


def _cost(workload: Workload) -> str:
    if not workload.allocated_gpu_milli or workload.started_at is None:
        return _("It holds no GPU now.")
    saved = saved_at(workload)
    passed = duration_text((timezone.now() - (saved or workload.started_at)).total_seconds())
    held = {"gpus": gpus_text(workload.allocated_gpu_milli), "passed": passed}
    if saved:
        return _("It is running on %(gpus)s; by what it declares, its last checkpoint was %(passed)s ago.") % held
    return _("It has run on %(gpus)s for %(passed)s and declares no checkpoint.") % held


def before_many(verb: str, rows: Iterable[Workload], actor: Actor) -> list[Ending]:
    """What a stop or a delete of each would do, what it would lose, and which will be refused or change nothing."""
    return [_ending(verb, each, actor) for each in rows]


def _ending(verb: str, workload: Workload, actor: Actor) -> Ending:
    if why := _stays(verb, workload, actor):
        return Ending(workload, why)
    lost = unsaved_gpu_seconds(workload)
    return Ending(workload, _cost(workload), gpu_time_text(lost) if lost else "", ends=True)


def _stays(verb: str, workload: Workload, actor: Actor) -> str:
    """Why nothing becomes of it; empty where it ends."""
    if not may_manage(actor, workload):
        return _("You may not change it: it will be refused.")
    if workload.desired_phase == DesiredPhase.DELETED:
        return _("It is being deleted already.")
    if verb != "stop":
        return ""
    if workload.type.fixed:
        return _("%(type)s workloads cannot be stopped: it will be refused.") % {"type": workload.type.title}
    if workload.phase in ENDED:
        return _("It has ended already: nothing changes.")
    running = workload.desired_phase == DesiredPhase.RUNNING and workload.phase in STOPPABLE
    return "" if running else _("It is stopped already: nothing changes.")
