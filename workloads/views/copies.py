"""What a form holds, as texts to copy."""

from collections.abc import Sequence

from django.http import HttpRequest

from portal.core.copying import address_of
from portal.core.recipes import Recipe, recipes
from tenants.models import Project
from workloads.intake import WorkloadSpec
from workloads.models import Plan
from workloads.selectors.plan_requests import plan_requests
from workloads.services.reading import scope_of
from workloads.submit_forms import FieldsForm, SubmitBase
from workloads.submit_recipes import Home, of_form, of_manifests


def submit_recipes(request: HttpRequest, form: SubmitBase, specs: Sequence[WorkloadSpec]) -> list[Recipe]:
    """Of a checked submit form."""
    project = form.chosen_project
    if isinstance(form, FieldsForm):
        return of_form(address_of(request), form.fields_for_intake, specs[0], home_of(project), scope_of(project))
    return of_manifests(address_of(request), specs, home_of(project))


def plan_recipes(request: HttpRequest, plan: Plan) -> list[Recipe]:
    """Of a plan: the same change, made at once."""
    return recipes(address_of(request), plan_requests(plan))


def home_of(project: Project) -> Home:
    """The project by the ids that the API asks for."""
    return Home(str(project.pk), project.name, str(project.cluster_id))
