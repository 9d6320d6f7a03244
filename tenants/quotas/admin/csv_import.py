"""Import and export quotas as CSV. A confirmed import opens one plan of all its rows, which makes the change."""

import csv
import io
from abc import ABCMeta, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.core.exceptions import NON_FIELD_ERRORS, ObjectDoesNotExist, ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from import_export.admin import ImportExportMixin
from import_export.declarative import ModelDeclarativeMetaclass
from import_export.fields import Field
from import_export.formats.base_formats import CSV
from import_export.resources import ModelResource
from import_export.widgets import ForeignKeyWidget, Widget

from clusters.flavours.objects import plain_number
from clusters.inventory.models import Cluster, NodePool
from portal.kit.api.routes import planner
from portal.kit.db.transactions import rollback_scope
from portal.kit.db.validation import MAX_REASON_LENGTH
from portal.kit.errors import PayloadTooLarge, RungError
from portal.kit.security.actors import Actor
from portal.kit.security.planned_changes import planned_change
from tenants.access.admin.service_admin import admin_actor, problem_text, request_access
from tenants.access.rules import Permission
from tenants.organisation.models import Department, Project
from tenants.quotas import rules as quotas_rules
from tenants.quotas.forms import HELP
from tenants.quotas.models import DepartmentQuota, ProjectQuota, Quota
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services.quotas import QuotaChange, planned_quota, set_department_quota, set_project_quota

LARGEST_FILE = 512 * 1024
MOST_LINES = 5000


class BoundedCSV(CSV):
    """CSV of a size that is parsed within a few milliseconds."""

    def create_dataset(self, in_stream: str | bytes, **kwargs: Any) -> Any:
        """The lines of a file. Raises PayloadTooLarge."""
        lines = in_stream.count("\n") if isinstance(in_stream, str) else in_stream.count(b"\n")
        if len(in_stream) > LARGEST_FILE or lines > MOST_LINES:
            text = _("The file may have at most %(lines)s lines and %(size)s kB.")
            raise PayloadTooLarge(text % {"lines": MOST_LINES, "size": LARGEST_FILE // 1024})
        dataset = super().create_dataset(in_stream, **kwargs)
        dataset.first_lines = list(_first_lines(in_stream)) if isinstance(in_stream, str) else []
        return dataset


def _first_lines(text: str) -> Iterator[int]:
    """The line of the file on which each row after the header begins; empty lines are no rows."""
    rows, first = csv.reader(io.StringIO(text)), 1
    for index, row in enumerate(rows):
        if index and row:
            yield first
        first = rows.line_num + 1


class WholeImportMixin(ImportExportMixin):
    """CSV in and out for people who hold the page's permission; every line goes through the resource's service."""

    permission: ClassVar[Permission]
    formats: ClassVar[list[type[CSV]]] = [BoundedCSV]
    skip_export_form = True
    show_change_form_export = False

    def has_import_permission(self, request: HttpRequest) -> bool:
        return request_access(request).can(self.permission)

    def has_export_permission(self, request: HttpRequest) -> bool:
        return request_access(request).can(self.permission)

    def get_import_resource_kwargs(self, request: HttpRequest, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_import_resource_kwargs(request, **kwargs), "actor": admin_actor(request)}

    def get_import_data_kwargs(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_import_data_kwargs(**kwargs), "rollback_on_validation_errors": True}

    def import_action(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """The upload, then the dry run with everything that the file would bring with it."""
        with planned_change():
            answer: HttpResponse = super().import_action(request, **kwargs)
        result = (getattr(answer, "context_data", None) or {}).get("result")
        for text in getattr(result, "warnings", ()):
            messages.warning(request, text)
        return answer

    def add_data_read_fail_error_to_form(self, form: Any, e: Exception) -> None:
        """A refusal of ours in its own words."""
        if isinstance(e, RungError):
            form.add_error("import_file", e.message)
        else:
            super().add_data_read_fail_error_to_form(form, e)

    def process_import(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """The confirmed import; a file that is gone (another server, an old tab) must be uploaded again."""
        try:
            answer: HttpResponse = super().process_import(request, **kwargs)
        except OSError:
            return self._again(request, _("The uploaded file has expired. Upload it again."))
        return answer

    def process_dataset(self, dataset: Any, form: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Everything is checked once more, and taken back."""
        with transaction.atomic(), planned_change():
            result = super().process_dataset(dataset, form, request, **kwargs)
            transaction.set_rollback(True)
        return result

    def process_result(self, result: Any, request: HttpRequest) -> HttpResponse:
        """Open the plan. Say so when something moved since the dry run: then there is none."""
        if result.has_errors() or result.has_validation_errors():
            return self._again(request, _("Nothing was imported: the configuration changed after the dry run."))
        if not result.entries:
            return self._again(request, _("The file changes nothing."))
        reason = "; ".join(dict.fromkeys(str(each.pop("reason")) for each in result.entries))[:MAX_REASON_LENGTH]
        change = {"quotas": result.entries, "reason": reason}
        try:
            with rollback_scope():
                return HttpResponseRedirect(planner().page(("quotas", change), admin_actor(request)))
        except RungError as error:
            return self._again(request, error.message)

    def _again(self, request: HttpRequest, text: str) -> HttpResponse:
        messages.error(request, text)
        return HttpResponseRedirect(reverse("admin:{}_{}_import".format(*self.get_model_info())))


AMOUNTS = ["gpu_deserved", "gpu_limit", "cpu_deserved", "cpu_limit", "memory_deserved", "memory_limit"]
WEIGHTS = ["over_quota_weight", "cpu_weight", "memory_weight"]
REST = [*WEIGHTS, "rank"]


class AmountWidget(Widget):
    """One dimension, as `tenants.quotas.rules` reads and writes it."""

    def __init__(self, dimension: str) -> None:
        super().__init__()
        self.dimension = dimension

    def clean(self, value: Any, row: Any = None, **_kwargs: Any) -> int | None:
        """Text to a whole number of the unit. Raises ValueError with what is expected."""
        try:
            return quotas_rules.parse_amount(self.dimension, str(value or "")[:50])
        except ValueError as error:
            text = _("%(trouble)s. Enter an amount: %(example)s")
            raise ValueError(text % {"trouble": str(error).rstrip("."), "example": HELP[self.dimension]}) from None

    def render(self, value: Any, obj: Any = None, **_kwargs: Any) -> str:
        return quotas_rules.format_amount(self.dimension, value)


class WeightWidget(Widget):
    """An over-quota weight; empty: as for GPUs, or the default of GPUs."""

    def clean(self, value: Any, row: Any = None, **_kwargs: Any) -> float | None:
        """Text to a number. Raises ValueError with what is expected."""
        text = str("" if value is None else value).strip()[:50]
        try:
            return float(text) if text else None
        except ValueError:
            raise ValueError(_("Not a number. Enter a weight such as 2 or 0.5.")) from None

    def render(self, value: Any, obj: Any = None, **_kwargs: Any) -> str:
        return "" if value is None else str(plain_number(value))


class NamedRow(ForeignKeyWidget):
    """A row by its name. An unknown name is refused at its column, with names that would be right if they are few."""

    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> Any:
        """Name to row. Raises ValidationError."""
        column = str(self.model._meta.model_name).replace("nodepool", "node_pool")
        kind, name = self.model._meta.verbose_name, str(value or "").strip()
        if not name:
            raise ValidationError({column: _("Enter the name of a %(kind)s.") % {"kind": kind}})
        try:
            return super().clean(name, row, **kwargs)
        except (ObjectDoesNotExist, ValueError):  # ValueError: NUL on PostgreSQL
            text = _("There is no %(kind)s “%(name)s”.") % {"kind": kind, "name": name[:63]}
            raise ValidationError({column: f"{text}{self._known(row)}"}) from None

    def _known(self, row: Any) -> str:
        rows = self.get_queryset("", row)
        names = [str(each) for each in rows.order_by("name").values_list("name", flat=True)[: LISTED + 1]]
        return _(" Known: %(names)s.") % {"names": ", ".join(names)} if 0 < len(names) <= LISTED else ""


LISTED: Final = 20
"""Longer lists of names are left out of a message."""


class PoolOfProject(NamedRow):
    """A node pool by its name in the project's cluster."""

    def get_queryset(self, value: Any, row: Any, *_args: Any, **_kwargs: Any) -> QuerySet[NodePool]:
        return NodePool.objects.filter(cluster__projects__name=row.get("project"))


class OfCluster(NamedRow):
    """A row by its name in the cluster that the line names."""

    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> Any:
        """The same, once the cluster is known. Raises ValidationError."""
        NamedRow(Cluster, "name").clean(row.get("cluster"), row)
        return super().clean(value, row, **kwargs)

    def get_queryset(self, value: Any, row: Any, *_args: Any, **_kwargs: Any) -> QuerySet[Any]:
        rows: QuerySet[Any] = self.model._default_manager.filter(cluster__name=row.get("cluster"))
        return rows


def amount_fields() -> dict[str, Field]:
    """One column per amount; the same for both kinds of quota."""
    return {name: Field(name, name, AmountWidget(name.split("_")[0])) for name in AMOUNTS}


def weight_fields() -> dict[str, Field]:
    """One column per weight; an empty one of GPUs is the default."""
    default = {"over_quota_weight": QuotaValues().over_quota_weight}
    return {name: Field(name, name, WeightWidget(), default=default.get(name)) for name in WEIGHTS}


COLUMNS: Final[Mapping[str, str]] = {
    **{f"/{name.replace('_', '/')}": name for name in AMOUNTS},
    **dict(zip((f"/{name}/overQuotaWeight" for name in HELP), WEIGHTS, strict=True)),
    "/rank": "rank",
    "/nodePool": "node_pool",
}
"""Where a value that the service refuses is in the file."""


def _by_column(error: RungError) -> dict[str, list[str]]:
    """The messages of a refusal by column; those of the line as a whole under Django's name for them."""
    found: dict[str, list[str]] = {}
    for problem in error.problems:
        found.setdefault(COLUMNS.get(problem.pointer, NON_FIELD_ERRORS), []).append(problem_text(problem))
    return found or {NON_FIELD_ERRORS: [error.message]}


def _at_cells(errors: Mapping[str, list[str]], cells: Mapping[str, Any], line: int) -> dict[str, list[str]]:
    """The messages by line and column, each with the value that was found there."""
    found = {}
    for column, texts in errors.items():
        value = str(cells.get(column) or "").strip()[:50]
        whole = column == NON_FIELD_ERRORS
        label = _("Line %(line)s") if whole else _("Line %(line)s, column %(column)s")
        found[label % {"line": line, "column": column}] = [
            f"“{value}”: {text}" if value and f"“{value}”" not in text else text for text in texts
        ]
    return found


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
        self.entries: list[dict[str, Any]] = []
        self.fields.update(amount_fields())
        self.fields.update(weight_fields())

    def save_instance(self, instance: Any, is_create: bool, row: Any, **kwargs: Any) -> None:  # noqa: FBT001 - the library's signature
        """Through the service. A refusal is shown at its line."""
        reason = str(row.get("reason") or "").strip()
        if not reason:
            raise ValidationError({"reason": _("Give a reason in the column “reason”.")})
        if self.actor is None:
            raise ValidationError(_("You are not signed in."))
        try:
            values = QuotaValues.of(instance)
            change = self.set_quota(instance, values, actor=self.actor, reason=reason)
        except RungError as error:
            raise ValidationError(_by_column(error)) from None
        instance.pk = change.quota.pk
        owner = instance.project if isinstance(instance, ProjectQuota) else instance.department
        self.entries.append(dict(planned_quota(owner, instance.node_pool, values, reason)[1]))
        self.warnings += [f"{instance}: {problem_text(warning)}" for warning in change.warnings]

    def after_import(self, dataset: Any, result: Any, **kwargs: Any) -> None:
        """What the file would bring with it is shown with the dry run; its rows become a plan."""
        result.warnings, result.entries = self.warnings, self.entries
        for invalid in result.invalid_rows:
            cells = dict(zip(dataset.headers, dataset[invalid.number - 1], strict=False))
            lines = getattr(dataset, "first_lines", [])
            invalid.number = lines[invalid.number - 1] if invalid.number <= len(lines) else invalid.number + 1
            invalid.error_dict = _at_cells(invalid.error_dict, cells, invalid.number)
            invalid.error = ValidationError(invalid.error_dict)

    @abstractmethod
    def set_quota(self, row: Any, values: QuotaValues, *, actor: Actor, reason: str) -> QuotaChange:
        """Call the service of this kind of quota."""

    def get_queryset(self) -> QuerySet[Quota]:
        """With the names that the columns show."""
        return super().get_queryset().select_related("node_pool")  # type: ignore[no-any-return]  # untyped library


class ProjectQuotaResource(QuotaResource):
    """Quotas of projects."""

    project = Field("project", "project", NamedRow(Project, "name"))
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
