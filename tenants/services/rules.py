"""What every rule of a department or a project is set with: who may, for whom, and where it is recorded."""

from portal.core.actors import Actor
from tenants.models import Department, Project
from tenants.permissions import Verb, require


def permit(owner: Department | Project, actor: Actor) -> None:
    """Refuse whoever may not set quotas there."""
    if isinstance(owner, Project):
        require(actor, Verb.MANAGE_PROJECT_QUOTA, project=owner)
    else:
        require(actor, Verb.MANAGE_DEPARTMENT_QUOTA, department=owner)


def owned(owner: Department | Project) -> dict[str, Department | Project]:
    """The owner as fields of a rule."""
    return {"project": owner} if isinstance(owner, Project) else {"department": owner}


def scope(owner: Department | Project) -> dict[str, str]:
    """The owner as the scope of an audit record."""
    return {"project_id": str(owner.pk)} if isinstance(owner, Project) else {}
