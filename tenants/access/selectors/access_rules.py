"""Access rules to read: memberships with subject, role and scope as columns, as far as somebody may look at them.

Run:ai's words: a membership is an access rule, the whole installation the scope `tenant`.
"""

from typing import Final
from uuid import UUID

from django.db.models import (
    Case,
    CharField,
    DateTimeField,
    Exists,
    Expression,
    F,
    OuterRef,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.functions import Cast, Coalesce, NullIf, Replace

from portal.kit.api.parsers import TENANT_ID
from portal.kit.security.actors import Actor, ActorKind
from tenants.access.models import Membership, User
from tenants.access.rules import Permission
from tenants.access.selectors.permissions import access_for

INSTALLATION: Final = "Whole installation"
_SCOPE_COLUMNS: Final = ("project", "department", "cluster")


def visible_rules(actor: Actor) -> QuerySet[Membership]:
    """Rules of the places where the actor may look at access; everybody's for those who may look everywhere."""
    standing = access_for(actor)
    if standing.can(Permission.VIEW_ACCESS):
        return Membership.objects.all()
    return Membership.objects.filter(
        Q(project__in=standing.projects(Permission.VIEW_ACCESS))
        | Q(department__in=standing.departments(Permission.VIEW_ACCESS))
        | Q(cluster__in=standing.clusters(Permission.VIEW_ACCESS))
    )


def own_rules(actor: Actor) -> QuerySet[Membership]:
    """Rules that are about the actor, by name or by a group."""
    if actor.kind is ActorKind.SERVICE_ACCOUNT:
        return Membership.objects.filter(service_account=UUID(actor.id))
    if actor.kind is ActorKind.USER and actor.id:
        shared = User.groups.through.objects.filter(user=int(actor.id), group=OuterRef("group"))
        return Membership.objects.filter(Q(user=int(actor.id)) | Exists(shared))
    return Membership.objects.none()


def with_api_columns(rules: QuerySet[Membership]) -> QuerySet[Membership]:
    """The rules with the words of the API as columns, to filter and sort by, and all that their JSON needs."""
    return rules.select_related(
        "user", "service_account", "group", "role", "cluster", "department__cluster", "project__department__cluster"
    ).annotate(**_columns())


def _columns() -> dict[str, Expression | F]:
    text = CharField()
    return {
        "subject_type": Case(
            When(user__isnull=False, then=Value("user")),
            When(group__isnull=False, then=Value("group")),
            default=Value("service-account"),
            output_field=text,
        ),
        "subject_key": Coalesce("user__username", "service_account__client_id", "group__name", output_field=text),
        "scope_type": Case(
            *(When(**{f"{place}__isnull": False, "then": Value(place)}) for place in _SCOPE_COLUMNS),
            default=Value("tenant"),
            output_field=text,
        ),
        "scope_key": Coalesce(
            Cast("project_id", text),
            Cast("department_id", text),
            Replace(Cast("cluster_id", text), Value("-"), Value("")),  # databases write UUIDs in their own ways
            Value(str(TENANT_ID)),
            output_field=text,
        ),
        "scope_name": Coalesce(
            "project__name", "department__name", "cluster__name", Value(INSTALLATION), output_field=text
        ),
        "deleted_at": NullIf(F("created_at"), F("created_at"), output_field=DateTimeField()),  # none is kept
        "phase": Case(When(pk__isnull=False, then=Value("Ready")), default=Value(""), output_field=text),
    }


def of_cluster(cluster_id: str) -> Q:
    """Rules of a cluster, of its departments and of its projects."""
    return Q(cluster=cluster_id) | Q(department__cluster=cluster_id) | Q(project__cluster=cluster_id)


def matching_text(text: str) -> Q:
    """Rules whose subject, role or scope contains the text."""
    columns = ("subject_key", "role__name", "scope_name")
    return Q(*(Q(**{f"{column}__icontains": text}) for column in columns), _connector=Q.OR)
