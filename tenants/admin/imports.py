"""Imports that happen whole or not at all, after a dry run that somebody has looked at."""

from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from import_export.admin import ImportExportMixin
from import_export.formats.base_formats import CSV

from tenants.admin.base import admin_actor, standing
from tenants.permissions import Verb


class WholeImportMixin(ImportExportMixin):
    """CSV in and out for people who hold the page's verb; every line goes through the resource's service."""

    verb: ClassVar[Verb]
    formats: ClassVar[list[type[CSV]]] = [CSV]
    skip_export_form = True
    show_change_form_export = False

    def has_import_permission(self, request: HttpRequest) -> bool:
        return standing(request).can(self.verb)

    def has_export_permission(self, request: HttpRequest) -> bool:
        return standing(request).can(self.verb)

    def get_import_resource_kwargs(self, request: HttpRequest, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_import_resource_kwargs(request, **kwargs), "actor": admin_actor(request)}

    def get_import_data_kwargs(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_import_data_kwargs(**kwargs), "rollback_on_validation_errors": True}

    def import_action(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """The upload, then the dry run with everything that the file would bring with it."""
        answer: HttpResponse = super().import_action(request, **kwargs)
        result = (getattr(answer, "context_data", None) or {}).get("result")
        for text in getattr(result, "warnings", ()):
            messages.warning(request, text)
        return answer

    def process_import(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """The confirmed import; a file that is gone (another server, an old tab) must be uploaded again."""
        try:
            answer: HttpResponse = super().process_import(request, **kwargs)
        except OSError:
            return self._again(request, _("The uploaded file is gone. Upload it again."))
        return answer

    def process_result(self, result: Any, request: HttpRequest) -> HttpResponse:
        """Say so when something moved since the dry run: then nothing was imported."""
        if result.has_errors() or result.has_validation_errors():
            return self._again(request, _("Nothing was imported: things have changed since the dry run."))
        answer: HttpResponse = super().process_result(result, request)
        return answer

    def _again(self, request: HttpRequest, text: str) -> HttpResponse:
        messages.error(request, text)
        return HttpResponseRedirect(reverse("admin:{}_{}_import".format(*self.get_model_info())))
