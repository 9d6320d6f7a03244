"""Every kind of document, in the order in which they are applied: each may name those before it."""

from collections.abc import Mapping
from typing import Final

from rung_cli.manifests.kinds.access import AccessRuleResource, RoleResource, ServiceAccountResource
from rung_cli.manifests.kinds.channels import NotificationChannelResource
from rung_cli.manifests.kinds.dictionary import PriorityResource, WorkloadTypeResource
from rung_cli.manifests.kinds.inventory import ClusterResource, NodePoolResource
from rung_cli.manifests.kinds.limits import (
    IdleLimitResource,
    MinRuntimeResource,
    PriorityCapResource,
    TimeLimitResource,
)
from rung_cli.manifests.kinds.org_units import DepartmentResource, ProjectResource
from rung_cli.manifests.kinds.scoped import PolicyResource, WorkloadTemplateResource
from rung_cli.manifests.resources import ResourceKind

KINDS: Final[Mapping[str, ResourceKind]] = {
    each.name: each
    for each in (
        PriorityResource(),
        WorkloadTypeResource(),
        ClusterResource(),
        NodePoolResource(),
        DepartmentResource(),
        ProjectResource(),
        PriorityCapResource(),
        TimeLimitResource(),
        IdleLimitResource(),
        MinRuntimeResource(),
        RoleResource(),
        ServiceAccountResource(),
        AccessRuleResource(),
        PolicyResource(),
        WorkloadTemplateResource(),
        NotificationChannelResource(),
    )
}
ORDER: Final = tuple(KINDS)
