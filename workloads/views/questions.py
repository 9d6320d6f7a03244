"""What people are asked before something ends: what it holds, and what has not been saved."""

from django.utils import timezone
from django.utils.translation import gettext as _

from portal.core.display import duration_text, gpus_text
from workloads.models import Workload
from workloads.selectors.life import saved_at


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
