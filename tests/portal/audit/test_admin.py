"""The audit trail in the admin console: readable, and nothing else."""

import pytest
from django.test import Client
from django.urls import reverse

from portal.audit.models import AuditRecord
from portal.audit.services import record
from portal.kit.security.actors import SYSTEM
from tests.factories.tenants import UserFactory


@pytest.fixture
def entry(db: None) -> AuditRecord:
    """A record with hostile text in it."""
    record(SYSTEM, "thing.change", None, entity_name="<script>alert(1)</script>", detail={"a": "<b>"})
    return AuditRecord.objects.get(action="thing.change")


def test_records_are_listed_and_shown_as_text(admin_client: Client, entry: AuditRecord) -> None:
    for page in (
        reverse("admin:audit_auditrecord_changelist"),
        reverse("admin:audit_auditrecord_change", args=[entry.pk]),
    ):
        answer = admin_client.get(page)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.content.decode()


def test_nobody_changes_adds_or_removes_one(admin_client: Client, entry: AuditRecord) -> None:
    for page in ("change", "delete"):
        answer = admin_client.post(reverse(f"admin:audit_auditrecord_{page}", args=[entry.pk]), {"post": "yes"})
        assert answer.status_code == 403
    assert admin_client.get(reverse("admin:audit_auditrecord_add")).status_code == 403
    form = {"action": "delete_selected", "_selected_action": [entry.pk], "post": "yes"}
    admin_client.post(reverse("admin:audit_auditrecord_changelist"), form)
    assert AuditRecord.objects.filter(pk=entry.pk).exists()


def test_staff_is_not_enough(client: Client, entry: AuditRecord) -> None:
    client.force_login(UserFactory(is_staff=True))
    assert client.get(reverse("admin:audit_auditrecord_changelist")).status_code == 403
