"""Pages of the console on top of services: they ask `permissions`, and a refusal is a message at its field.

A form counts as valid after a dry run: the service runs in a transaction that is rolled back, and what it
refuses lands at the fields. The real run follows at the save; if another user was faster, the page says so.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db import transaction
from django.db.models import Model, Q, QuerySet
from django.forms import ModelForm
from django.forms.widgets import MediaDefiningClass
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext_lazy as _

from portal.audit.services import record_refusal
from portal.kit.api.routes import PlannedWrite, planner
from portal.kit.db.transactions import rollback_scope
from portal.kit.errors import Problem, RungError
from portal.kit.security.actors import Actor, Channel
from portal.kit.security.planned_changes import planned_change
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import Access, access_for

FROM_CONSOLE = "Deleted in the admin console"


@dataclass(frozen=True, slots=True)
class SaveResult:
    """The row that a service has written."""

    instance: Model


Perform = Callable[[Any], SaveResult]


def admin_actor(request: HttpRequest) -> Actor:
    return actor_of(request).through(Channel.ADMIN)


def request_access(request: HttpRequest) -> Access:
    """What the person may do, read once per request."""
    known: Access | None = vars(request).get("_access")
    if known is None:
        known = vars(request)["_access"] = access_for(admin_actor(request))
    return known


def request_errors(request: HttpRequest) -> list[RungError]:
    """What services have refused in this request."""
    found: list[RungError] = vars(request).setdefault("_refusals", [])
    return found


class ServiceForm(ModelForm):
    """A form that asks its service before it calls itself valid."""

    perform: ClassVar[Perform]
    refused: ClassVar[Callable[[RungError], None]]
    field_at: ClassVar[Mapping[str, str]] = {}

    def full_clean(self) -> None:
        """Fields and constraints first; then the service, for nothing."""
        super().full_clean()
        if not self.is_bound or self.errors:
            return
        try:
            with transaction.atomic(), planned_change():
                type(self).perform(self)
                transaction.set_rollback(True)
        except RungError as error:
            type(self).refused(error)
            self.refuse(error)

    def refuse(self, error: RungError) -> None:
        """Show every problem at its field, the others above the form."""
        for problem in error.problems or (Problem("", error.code, error.message),):
            field = self.field_at.get(problem.pointer, "")
            text = forms.ValidationError(problem_text(problem), code=problem.code)
            self.add_error(field if field in self.fields else None, text)


def problem_text(problem: Problem) -> str:
    """A problem as one sentence, with what would be right."""
    return f"{problem.message} ({', '.join(problem.allowed)})" if problem.allowed else problem.message


def reason_field(*, required: bool) -> forms.CharField:
    """Why something is changed: kept in the history and in the audit trail."""
    widget = forms.Textarea(attrs={"rows": 2})
    return forms.CharField(
        label=_("Reason"), max_length=500, required=required, widget=widget, help_text=_("Kept in the history.")
    )


class ErrorsAsMessages(admin.ModelAdmin):
    """What a service refuses beyond a form (a deletion, a lost race) sends people back with its words."""

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        return self._hint(request, partial(super().changeform_view, request, object_id, form_url, extra_context))

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> Any:
        return self._hint(request, partial(super().delete_view, request, object_id, extra_context))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        return self._hint(request, partial(super().changelist_view, request, extra_context))

    def _hint(self, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
        """Answer, then record what was refused: outside of the transaction that was rolled back."""
        try:
            with transaction.atomic():
                answer = view()
        except RungError as error:
            request_errors(request).append(error)
            self.message_user(request, error.message, messages.ERROR)
            answer = HttpResponseRedirect(request.get_full_path())
        kind = str(self.opts.model_name)
        for refusal in request_errors(request):
            detail = {"path": request.path}
            record_refusal(admin_actor(request), f"{kind}.change", refusal, entity_type=kind, detail=detail)
        return answer


class _AbstractAdmin(ABCMeta, MediaDefiningClass):
    """Abstract methods for pages of the console."""


class ServiceAdmin(ErrorsAsMessages, metaclass=_AbstractAdmin):
    """A page whose rows are written by services only.

    Who holds the permission everywhere sees every row; a page may show admins of departments the rows of their scope.
    """

    permission: ClassVar[Permission] = Permission.MANAGE_ORGANISATION
    add_form: ClassVar[type[ServiceForm] | None] = None
    fixed_fields: ClassVar[tuple[str, ...]] = ()
    """Given once, shown ever after."""

    @abstractmethod
    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        """Call the service for a valid form."""

    @abstractmethod
    def remove(self, actor: Actor, obj: Any) -> None:
        """Call the service that removes a row."""

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002 - Django's signature
        if obj is None and self.add_form is not None:
            kwargs.setdefault("form", self.add_form)
        form = super().get_form(request, obj, change=change, **kwargs)
        call = staticmethod(partial(self.perform, request, change=obj is not None))
        refused = staticmethod(request_errors(request).append)
        return type(form.__name__, (form,), {"perform": call, "refused": refused})

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.readonly_fields if obj is None else (*self.fixed_fields, *self.readonly_fields)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        shown = list(self.get_readonly_fields(request, obj))
        return [*shown, *(field for field in super().get_fields(request, obj) if field not in shown)]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        outcome = self.perform(request, form, change=bool(change))
        obj.pk, obj._state.adding = outcome.instance.pk, False

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self.remove(admin_actor(request), obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for obj in queryset:
            self.remove(admin_actor(request), obj)

    def reached(self, held: Access) -> Q:
        """Rows for a user who does not have the permission everywhere: none, unless a page says otherwise."""
        return Q(pk__in=[])

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows, held = super().get_queryset(request), request_access(request)
        return rows if held.can(self.permission) else rows.filter(self.reached(held))

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer only projects and departments where the permission is allowed."""
        offered = {"project": request_access(request).projects, "department": request_access(request).departments}
        if choices := offered.get(db_field.name):
            kwargs["queryset"] = choices(self.permission)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        self._absent_beyond_reach(request, object_id)
        return super().history_view(request, object_id, extra_context)

    def history_form_view(
        self, request: HttpRequest, object_id: str, version_id: str, extra_context: Any = None
    ) -> Any:
        self._absent_beyond_reach(request, object_id)
        view = super().history_form_view  # type: ignore[misc]  # simple_history's, mixed in beside this class
        return self._hint(request, partial(view, request, object_id, version_id, extra_context))

    def _absent_beyond_reach(self, request: HttpRequest, object_id: str) -> None:
        """History is kept of rows that are gone, and of rows that are not one's own: to others both are absent."""
        if not request_access(request).can(self.permission) and self.get_object(request, unquote(object_id)) is None:
            raise Http404

    def _allowed(self, request: HttpRequest, obj: Any = None) -> bool:
        held = request_access(request)
        if held.can(self.permission):
            return True
        scoped = type(self).reached is not ServiceAdmin.reached and held.holds(self.permission)
        return scoped and (obj is None or self.model._default_manager.filter(self.reached(held), pk=obj.pk).exists())

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self._allowed(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._allowed(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self._allowed(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._allowed(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._allowed(request, obj)


class PlannedAdmin(ServiceAdmin):
    """Save stores a plan of the change, which shows its effect; the plan is what makes the change."""

    @abstractmethod
    def planned(self, obj: Any, data: Mapping[str, Any] | None) -> PlannedWrite | None:
        """The plan of a valid form's data; of None: of removing the row. None: what changes is saved at once."""

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        """Store a plan; the page that follows is the plan's. A refusal is recorded by the page around this one."""
        planned = self.planned(obj, form.cleaned_data)
        if planned is None:
            super().save_model(request, obj, form, change)
            return
        with rollback_scope():
            vars(request)["_plan"] = planner().page(planned, admin_actor(request))

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Nothing is added before the plan is applied."""
        return None if _plan_page(request) else super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Nothing is changed before the plan is applied."""
        return None if _plan_page(request) else super().log_change(request, obj, message)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        page = _plan_page(request)
        return HttpResponseRedirect(page) if page else super().response_add(request, obj, post_url_continue)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        page = _plan_page(request)
        return HttpResponseRedirect(page) if page else super().response_change(request, obj)


def _plan_page(request: HttpRequest) -> str:
    """Address of the plan that Save has stored in this request; empty: none."""
    return str(vars(request).get("_plan", ""))
