"""Admin console of quotas and GPU caps: amounts with units, a reason for every change, CSV.

Save opens a plan of the quota or cap, which shows its effect; the plan is what changes it.

Older versions in the console: amounts stand there with their units, not as the numbers of the columns.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from simple_history.admin import SimpleHistoryAdmin
from simple_history.template_utils import HistoricalRecordContextHelper

from portal.kit.api.routes import PlannedWrite
from portal.kit.errors import RungError
from portal.kit.pages.formatting import gpu_text
from portal.kit.security.actors import Actor
from scheduling.model.resources import DIMENSIONS, Limit
from tenants.access.admin.service_admin import (
    FROM_CONSOLE,
    PlannedAdmin,
    SaveResult,
    ServiceForm,
    admin_actor,
    problem_text,
    reason_field,
)
from tenants.access.rules import Permission
from tenants.access.selectors import Access
from tenants.quotas.admin.csv_import import DepartmentQuotaResource, ProjectQuotaResource, WholeImportMixin
from tenants.quotas.forms import AmountField
from tenants.quotas.models import DepartmentQuota, PriorityCap, ProjectQuota, Quota
from tenants.quotas.rules import QuotaValues, amount_text, value_problems
from tenants.quotas.services.quotas import (
    planned_quota,
    planned_rule,
    reset_quota,
    set_department_quota,
    set_priority_cap,
    set_project_quota,
)

BOUNDS = {f"{dimension}_{kind}": dimension for dimension in DIMENSIONS for kind in ("deserved", "limit")}


class FormattedAmountsHistory(HistoricalRecordContextHelper):
    """What changed between two versions."""

    def prepare_delta_change_value(self, change: Any, value: Any) -> Any:
        """32000 thousandths are 32 GPUs; nothing is no limit, or not counted."""
        if change.field not in BOUNDS:
            return super().prepare_delta_change_value(change, value)
        if value is None:
            return _("unlimited") if change.field.endswith("limit") else _("not counted")
        return amount_text(BOUNDS[change.field], value)


UNLIMITED = _("Empty: unlimited.")
UNCOUNTED = _("Empty: not counted.")
AMOUNTS = ["gpu_deserved", "gpu_limit", "cpu_deserved", "cpu_limit", "memory_deserved", "memory_limit"]
REST = ["over_quota_weight", "cpu_weight", "memory_weight", "rank"]


class QuotaForm(ServiceForm):
    """What a quota says, and why it is changed."""

    gpu_deserved = AmountField("gpu", label=_("GPUs deserved"))
    gpu_limit = AmountField("gpu", label=_("GPU limit"), empty=str(UNLIMITED), required=False)
    cpu_deserved = AmountField("cpu", label=_("CPU deserved"), empty=str(UNCOUNTED), required=False)
    cpu_limit = AmountField("cpu", label=_("CPU limit"), empty=str(UNLIMITED), required=False)
    memory_deserved = AmountField("memory", empty=str(UNCOUNTED), required=False)
    memory_limit = AmountField("memory", empty=str(UNLIMITED), required=False)
    reason = reason_field(required=True)
    field_at = {
        **{f"/{name.replace('_', '/')}": name for name in AMOUNTS},
        "/gpu/overQuotaWeight": "over_quota_weight",
        "/cpu/overQuotaWeight": "cpu_weight",
        "/memory/overQuotaWeight": "memory_weight",
        "/rank": "rank",
        "/nodePool": "node_pool",
        "/reason": "reason",
    }

    def values(self) -> QuotaValues:
        return self.values_in(self.cleaned_data)

    @staticmethod
    def values_in(data: Mapping[str, Any]) -> QuotaValues:
        return QuotaValues(
            Limit(data["gpu_deserved"], data["cpu_deserved"], data["memory_deserved"]),
            Limit(data["gpu_limit"], data["cpu_limit"], data["memory_limit"]),
            data["over_quota_weight"],
            data["rank"],
            data["cpu_weight"],
            data["memory_weight"],
        )

    def clean(self) -> dict[str, Any]:
        """Amounts that contradict each other, at their field and with both numbers."""
        if not self.errors:
            for problem in value_problems(self.values()):
                self.add_error(self.field_at[problem.pointer], problem_text(problem))
        return self.cleaned_data


class ProjectQuotaForm(QuotaForm):
    class Meta:
        model = ProjectQuota
        fields = ["project", "node_pool", *AMOUNTS, *REST]


class DepartmentQuotaForm(QuotaForm):
    class Meta:
        model = DepartmentQuota
        fields = ["department", "node_pool", *AMOUNTS, *REST]


class QuotaAdmin(WholeImportMixin, PlannedAdmin, SimpleHistoryAdmin):
    """What both kinds of quota share. The mixin order matters: import and export wrap the list, history the rows."""

    ordering = ["node_pool", "pk"]
    list_filter = [("node_pool", admin.RelatedOnlyFieldListFilter), "rank"]

    @admin.display(description=_("GPUs deserved"), ordering="gpu_deserved")
    def gpu_deserved_text(self, obj: Quota) -> str:
        return gpu_text(obj.gpu_deserved)

    @admin.display(description=_("GPU limit"), ordering="gpu_limit")
    def gpu_limit_text(self, obj: Quota) -> str:
        return "unlimited" if obj.gpu_limit is None else gpu_text(obj.gpu_limit)

    @admin.display(description=_("over-quota weight"), ordering="over_quota_weight")
    def weights_text(self, obj: Quota) -> str:
        return obj.weights_text

    def planned(self, obj: Any, data: Mapping[str, Any] | None) -> PlannedWrite:
        owner = obj.project if isinstance(obj, ProjectQuota) else obj.department
        values = QuotaForm.values_in(data) if data else None
        return planned_quota(owner, obj.node_pool, values, data["reason"] if data else FROM_CONSOLE)

    def remove(self, actor: Actor, obj: ProjectQuota | DepartmentQuota) -> None:
        reset_quota(quota=obj, actor=actor, reason=FROM_CONSOLE)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> Any:
        """Django's confirmation, with what the removal would bring with it. What would be refused is, on the click."""
        row = self.get_object(request, unquote(object_id)) if request.method == "GET" else None
        if row is not None:
            with suppress(RungError), transaction.atomic():
                for warning in reset_quota(quota=row, actor=admin_actor(request), reason=FROM_CONSOLE):
                    self.message_user(request, warning.message, messages.WARNING)
                transaction.set_rollback(True)
        return super().delete_view(request, object_id, extra_context)

    def get_historical_record_context_helper(
        self, request: HttpRequest, historical_record: Any
    ) -> FormattedAmountsHistory:
        return FormattedAmountsHistory(self.model, historical_record)


@admin.register(ProjectQuota)
class ProjectQuotaAdmin(QuotaAdmin):
    permission = Permission.MANAGE_PROJECT_QUOTA
    form = ProjectQuotaForm
    resource_classes: ClassVar[list[type[Any]]] = [ProjectQuotaResource]
    fixed_fields = ("project", "node_pool")
    list_display = ["project", "node_pool", "gpu_deserved_text", "gpu_limit_text", "weights_text", "rank"]
    list_select_related = ["project", "node_pool"]
    search_fields = ["project__name", "project__department__name"]

    def reached(self, held: Access) -> Q:
        return Q(project__in=held.projects(self.permission))

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        row = form.instance
        outcome = set_project_quota(
            project=row.project,
            node_pool=row.node_pool,
            values=form.values(),
            actor=admin_actor(request),
            reason=form.cleaned_data["reason"],
        )
        return SaveResult(outcome.quota)


@admin.register(DepartmentQuota)
class DepartmentQuotaAdmin(QuotaAdmin):
    permission = Permission.MANAGE_DEPARTMENT_QUOTA
    form = DepartmentQuotaForm
    resource_classes: ClassVar[list[type[Any]]] = [DepartmentQuotaResource]
    fixed_fields = ("department", "node_pool")
    list_display = ["department", "node_pool", "gpu_deserved_text", "gpu_limit_text", "weights_text", "rank"]
    list_select_related = ["department", "node_pool"]
    search_fields = ["department__name"]

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        row = form.instance
        outcome = set_department_quota(
            department=row.department,
            node_pool=row.node_pool,
            values=form.values(),
            actor=admin_actor(request),
            reason=form.cleaned_data["reason"],
        )
        return SaveResult(outcome.quota)


class PriorityCapForm(ServiceForm):
    """At most so many GPUs of one priority in a project."""

    gpu_limit = AmountField("gpu", label=_("GPU limit"))
    reason = reason_field(required=True)
    field_at = {"/priority": "priority", "/gpuLimit": "gpu_limit", "/reason": "reason"}

    class Meta:
        model = PriorityCap
        fields = ["project", "priority", "gpu_limit"]


@admin.register(PriorityCap)
class PriorityCapAdmin(PlannedAdmin, SimpleHistoryAdmin):
    permission = Permission.MANAGE_PROJECT_QUOTA
    form = PriorityCapForm
    fixed_fields = ("project", "priority")
    list_display = ["project", "priority", "gpu_limit_text"]
    list_select_related = ["project"]
    search_fields = ["project__name", "priority"]

    def reached(self, held: Access) -> Q:
        return Q(project__in=held.projects(self.permission))

    def get_historical_record_context_helper(
        self, request: HttpRequest, historical_record: Any
    ) -> FormattedAmountsHistory:
        return FormattedAmountsHistory(self.model, historical_record)

    @admin.display(description=_("GPUs at most"), ordering="gpu_limit")
    def gpu_limit_text(self, obj: PriorityCap) -> str:
        return gpu_text(obj.gpu_limit)

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        row, data = form.instance, form.cleaned_data
        cap = set_priority_cap(
            project=row.project,
            priority=row.priority,
            gpu_limit=data["gpu_limit"],
            actor=admin_actor(request),
            reason=data["reason"],
        )
        return SaveResult(cap or row)

    def planned(self, obj: PriorityCap, data: Mapping[str, Any] | None) -> PlannedWrite:
        return "priority_cap", planned_rule(
            obj.project,
            data["reason"] if data else FROM_CONSOLE,
            priority=obj.priority,
            gpu_limit=data["gpu_limit"] if data else None,
        )

    def remove(self, actor: Actor, obj: PriorityCap) -> None:
        set_priority_cap(project=obj.project, priority=obj.priority, gpu_limit=None, actor=actor, reason=FROM_CONSOLE)
