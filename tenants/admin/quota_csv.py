"""Quotas as CSV: amounts as people write them, every row through the service, a dry run that is rolled back."""

from abc import ABCMeta, abstractmethod
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from import_export.declarative import ModelDeclarativeMetaclass
from import_export.fields import Field
from import_export.resources import ModelResource
from import_export.widgets import ForeignKeyWidget, Widget

from clusters.models import NodePool
from portal.core.actors import Actor
from portal.core.errors import RungError
from tenants import amounts
from tenants.admin.base import problem_text
from tenants.models import Department, DepartmentQuota, Project, ProjectQuota, Quota
from tenants.quota_values import QuotaValues
from tenants.services.quotas import QuotaChange, set_department_quota, set_project_quota

AMOUNTS = ["gpu_deserved", "gpu_limit", "cpu_deserved", "cpu_limit", "memory_deserved", "memory_limit"]
REST = ["over_quota_weight", "rank"]


class AmountWidget(Widget):
    """One dimension, as `tenants.amounts` reads and writes it."""

    def __init__(self, dimension: str) -> None:
        super().__init__()
        self.dimension = dimension

    def clean(self, value: Any, row: Any = None, **_kwargs: Any) -> int | None:
        """Text to a whole number of the unit. Raises ValueError."""
        return amounts.parse(self.dimension, str(value or "")[:50])

    def render(self, value: Any, obj: Any = None, **_kwargs: Any) -> str:
        """And back."""
        return amounts.render(self.dimension, value)


class PoolOfProject(ForeignKeyWidget):
    """A node pool by its name in the project's cluster."""

    def get_queryset(self, value: Any, row: Any, *_args: Any, **_kwargs: Any) -> QuerySet[NodePool]:
        return NodePool.objects.filter(cluster__projects__name=row.get("project"))


class OfCluster(ForeignKeyWidget):
    """A row by its name in the cluster that the line names."""

    def get_queryset(self, value: Any, row: Any, *_args: Any, **_kwargs: Any) -> QuerySet[Any]:
        rows: QuerySet[Any] = self.model._default_manager.filter(cluster__name=row.get("cluster"))
        return rows


def amount_fields() -> dict[str, Field]:
    """One column per amount; the same for both kinds of quota."""
    return {name: Field(name, name, AmountWidget(name.split("_")[0])) for name in AMOUNTS}


class _AbstractResource(ABCMeta, ModelDeclarativeMetaclass):
    """Abstract methods for imports."""


class QuotaResource(ModelResource, metaclass=_AbstractResource):
    """What both kinds share. A line whose reason is empty is refused, a line that changes nothing is skipped.

    Exports carry the empty column too: they are the template of the next import.
    """

    reason = Field(column_name="reason")

    def __init__(self, actor: Actor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.actor = actor
        self.warnings: list[str] = []
        self.fields.update(amount_fields())

    def save_instance(self, instance: Any, is_create: bool, row: Any, **kwargs: Any) -> None:  # noqa: FBT001 - the library's signature
        """Through the service. A refusal is shown at its line."""
        reason = str(row.get("reason") or "").strip()
        if not reason:
            raise ValidationError(_("Give a reason in the column “reason”."))
        if self.actor is None:
            raise ValidationError(_("Nobody has signed in."))
        try:
            change = self.set_quota(instance, QuotaValues.of(instance), actor=self.actor, reason=reason)
        except RungError as error:
            raise ValidationError([problem_text(problem) for problem in error.problems] or error.message) from None
        instance.pk = change.quota.pk
        self.warnings += [f"{instance}: {problem_text(warning)}" for warning in change.warnings]

    def after_import(self, dataset: Any, result: Any, **kwargs: Any) -> None:
        """What the file would bring with it is shown with the dry run."""
        result.warnings = self.warnings

    @abstractmethod
    def set_quota(self, row: Any, values: QuotaValues, *, actor: Actor, reason: str) -> QuotaChange:
        """Call the service of this kind of quota."""

    def get_queryset(self) -> QuerySet[Quota]:
        """With the names that the columns show."""
        return super().get_queryset().select_related("node_pool")  # type: ignore[no-any-return]  # untyped library


class ProjectQuotaResource(QuotaResource):
    """Quotas of projects."""

    project = Field("project", "project", ForeignKeyWidget(Project, "name"))
    node_pool = Field("node_pool", "node_pool", PoolOfProject(NodePool, "name"))

    class Meta:
        model = ProjectQuota
        fields = ("project", "node_pool", *AMOUNTS, *REST, "reason")
        import_order = fields
        export_order = fields
        import_id_fields = ("project", "node_pool")
        skip_unchanged = True
        report_skipped = True

    def set_quota(self, row: ProjectQuota, values: QuotaValues, *, actor: Actor, reason: str) -> QuotaChange:
        """Of a project."""
        return set_project_quota(
            project=row.project, node_pool=row.node_pool, values=values, actor=actor, reason=reason
        )


class DepartmentQuotaResource(QuotaResource):
    """Quotas of departments, whose names are unique in their cluster only."""

    cluster = Field("department__cluster__name", "cluster", readonly=True)
    department = Field("department", "department", OfCluster(Department, "name"))
    node_pool = Field("node_pool", "node_pool", OfCluster(NodePool, "name"))

    class Meta:
        model = DepartmentQuota
        fields = ("cluster", "department", "node_pool", *AMOUNTS, *REST, "reason")
        export_order = fields
        import_id_fields = ("department", "node_pool")
        skip_unchanged = True
        report_skipped = True

    def set_quota(self, row: DepartmentQuota, values: QuotaValues, *, actor: Actor, reason: str) -> QuotaChange:
        """Of a department."""
        return set_department_quota(
            department=row.department, node_pool=row.node_pool, values=values, actor=actor, reason=reason
        )
