"""Templates and assets to Run:ai's JSON, and bodies of templates to what the services take."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from portal.core.wire import TENANT_ID, stamp
from workloads.models import Asset, WorkloadTemplate
from workloads.models.template import Prepared, TemplateKind
from workloads.policy_documents import place_json
from workloads.prepared import combined
from workloads.scopes import place_of_row
from workloads.services.templates import TemplateDraft, runnable

Body = dict[str, Any]


def template_json(row: WorkloadTemplate) -> Body:
    """WorkspaceTemplate, TrainingTemplate, DistributedTemplate or InferenceTemplate, by its kind."""
    full, issue = combined(row), runnable(row)
    body = template_body(row) | {
        "meta": _template_meta(row),
        "runnable": {"isRunnable": not issue, "issue": issue or None},
        "combinedSpec": full.spec,
    }
    return body | ({"combinedMasterSpec": full.master} if row.kind == TemplateKind.DISTRIBUTED else {})


def template_body(row: WorkloadTemplate) -> Body:
    """What it says, as it can be sent again."""
    body: Body = {
        "meta": {"name": row.name, "description": row.description or None},
        "spec": row.spec,
        "assets": _ids(row.environment_id, row.compute_id),
    }
    if row.kind == TemplateKind.DISTRIBUTED:
        assets = _ids(row.master_environment_id, row.master_compute_id)
        leads = row.master is not None or assets is not None
        body["masterSpecSameAsWorker"] = row.master_same
        body["master"] = {"spec": row.master, "assets": assets} if leads else None
    return body


def draft_of(body: Mapping[str, Any]) -> TemplateDraft:
    """A checked body as the services take it."""
    meta, master = body["meta"], body.get("master") or {}
    own, leading = body.get("assets") or {}, master.get("assets") or {}
    return TemplateDraft(
        name=meta["name"],
        description=meta.get("description") or "",
        spec=body.get("spec") or {},
        environment=own.get("environment"),
        compute=own.get("compute"),
        master=master.get("spec"),
        master_same=body.get("masterSpecSameAsWorker"),
        master_environment=leading.get("environment"),
        master_compute=leading.get("compute"),
    )


def asset_json(row: Asset, templates: Iterable[WorkloadTemplate] | None = None) -> Body:
    """ComputeAsset or EnvironmentAsset; `templates`: those that refer to it, where somebody asked."""
    meta = {
        **place_json(place_of_row(row)),
        **_kept(row),
        "kind": row.kind,
        "tenantId": TENANT_ID,
        "autoDelete": False,
        "private": False,
        "workloadSupportedTypes": row.supports or None,
        **({"projectName": row.project.name} if row.project else {}),
    }
    body: Body = {"meta": meta, "spec": row.spec}
    if templates is not None:
        body["usedBy"] = {"templates": [{"id": str(each.pk), "name": each.name} for each in templates]}
    return body


def _template_meta(row: WorkloadTemplate) -> Body:
    place = place_of_row(row)
    ids = {name: value for name, value in place_json(place).items() if name != "scope"}
    where = {"scopeType": str(place.scope), "scopeId": place.key or str(TENANT_ID), **ids}
    return {**where, **_kept(row), "workloadType": row.type_name}


def _kept(row: Prepared) -> Body:
    return {
        "id": str(row.pk),
        "name": row.name,
        "description": row.description or None,
        "createdBy": row.created_by,
        "createdAt": stamp(row.created_at),
        "updatedBy": row.updated_by,
        "updatedAt": stamp(row.updated_at),
    }


def _ids(environment: UUID | None, compute: UUID | None) -> Body | None:
    named = {"environment": environment, "compute": compute}
    return {kind: str(key) for kind, key in named.items() if key} or None
