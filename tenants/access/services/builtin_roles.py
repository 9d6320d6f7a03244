"""The roles that come with Rung, weakest first."""

from typing import Any, Final

from django.apps.registry import Apps

PREDEFINED: Final = (
    ("viewer", "Viewer", "Sees departments, projects and their workloads."),
    ("member", "L1 researcher", "Submits workloads, and changes, stops and deletes their own."),
    ("owner", "Project administrator", "Manages everybody's workloads and who is in a project."),
    ("department-admin", "Department administrator", "Manages projects of a department, their quotas and members."),
    ("platform-admin", "System administrator", "May do everything, everywhere."),
)


def install_roles(*, apps: Apps, using: str, **_signal: Any) -> None:
    """Create the built-in roles that are missing, after `migrate`.

    `apps` are the models as migrated; a database without them (migrated to an earlier state) is left alone.
    """
    try:
        role = apps.get_model("tenants", "AccessRole")
    except LookupError:
        return
    present = set(role._default_manager.using(using).values_list("key", flat=True))
    role._default_manager.using(using).bulk_create(
        role(key=key, name=name, description=description, custom=False, created_by="rung")
        for key, name, description in PREDEFINED
        if key not in present
    )
