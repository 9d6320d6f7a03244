"""Forms of quota requests: a new one, and the grant of one."""

from typing import Any, Final, cast

from django import forms
from django.db.models import CharField, Value
from django.db.models.functions import Concat
from django.utils.translation import gettext_lazy as _

from clusters.inventory.models import NodePool
from portal.kit.db.validation import MAX_REASON_LENGTH
from portal.kit.pages.forms import Offer, PageForm, SearchField
from tenants.access.rules import Permission
from tenants.access.selectors import Access
from workloads.quota_requests.models import QuotaRequest

POINTERS: Final = {"/nodePoolId": "node_pool", "/projectId": "project"}


def _gpus(**more: Any) -> forms.FloatField:
    return forms.FloatField(label=_("GPUs"), widget=forms.NumberInput(attrs={"step": "any", "min": "0"}), **more)


def _until(**more: Any) -> forms.DateField:
    widget = forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"})
    return forms.DateField(label=_("Until"), widget=widget, input_formats=["%Y-%m-%d"], required=False, **more)


def _reason(label: Any, **more: Any) -> forms.CharField:
    return forms.CharField(label=label, max_length=MAX_REASON_LENGTH, widget=forms.Textarea(attrs={"rows": 3}), **more)


class QuotaRequestForm(PageForm):
    """More GPUs for one of the projects that the reader submits to."""

    project = SearchField(label=_("Project"))
    node_pool = SearchField(label=_("Node pool"))
    gpus = _gpus(help_text=_("On top of the deserved quota. A limit is raised by the same amount."))
    until = _until(help_text=_("Last day (UTC), after which the GPUs are taken back. Empty: no end."))
    reason = _reason(_("Reason"))

    def __init__(self, *args: Any, access: Access, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        projects = access.projects(Permission.SUBMIT)
        pools = NodePool.objects.filter(cluster__in=projects.values("cluster")).select_related("cluster")
        self._field("project").offer(Offer(projects.select_related("department", "cluster")))
        self._field("node_pool").offer(
            Offer(pools, Concat("name", Value(" on "), "cluster__name", output_field=CharField()))
        )

    def _field(self, name: str) -> SearchField:
        return cast("SearchField", self.fields[name])

    @property
    def requested(self) -> dict[str, Any]:
        """What `create_request` takes."""
        rows = {name: self._field(name).row_of(self.cleaned_data[name]) for name in ("project", "node_pool")}
        return {**rows, **{name: self.cleaned_data[name] for name in ("gpus", "until", "reason")}}


class ApprovalForm(PageForm):
    """Grant all or part of a request."""

    gpus = _gpus()
    until = _until()
    reason = _reason(_("Comment"), required=False)

    def __init__(self, *args: Any, row: QuotaRequest, **kwargs: Any) -> None:
        super().__init__(*args, initial={"gpus": f"{row.gpu_milli / 1000:g}", "until": row.until}, **kwargs)


class DeclineForm(PageForm):
    """Decline a request."""

    reason = _reason(_("Reason"))
