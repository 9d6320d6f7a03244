"""Templates worth looking at: one that the form can show, one that says more and is not complete."""

from portal.kit.security.actors import SYSTEM
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.cast import acting
from workloads.workload_templates.services import AssetDraft, TemplateDraft, create_asset, create_template

IMAGE = "nvcr.io/nvidia/pytorch:24.05-py3"


def kept_templates(project: Project, user: User) -> dict[str, str]:
    """Addresses of their pages by name."""
    size = create_asset(
        kind="compute", owner=None, draft=AssetDraft(name="one-gpu", spec={"gpuDevicesRequest": 1}), actor=SYSTEM
    )
    whole = TemplateDraft(name="Nightly training", description="As every night", spec={"image": IMAGE}, compute=size.pk)
    own = create_template(kind="trainings", owner=project, draft=whole, actor=acting(user))
    more = {"workingDir": "/data/of/a/folder", "distributedFramework": "PyTorch"}
    theirs = create_template(kind="distributed", owner=None, draft=TemplateDraft("Gang", spec=more), actor=SYSTEM)
    return {
        "templates": "/templates/",
        "new template": "/templates/add/",
        "a template": f"/templates/{own.pk}/",
        "incomplete template": f"/templates/{theirs.pk}/",
        "submit from a template": f"/workloads/submit/?template={theirs.pk}",
    }
