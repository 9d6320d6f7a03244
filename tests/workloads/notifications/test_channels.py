"""What a channel of mail may say, and where its password goes."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusters.connection.services.gateways import rotate_credentials
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, NotFound, ValidationFailed
from portal.kit.security.actors import SYSTEM, CredentialLimits
from portal.kit.security.encryption import new_key
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.support.authority import authority
from tests.support.mail import mail_server
from tests.workloads.notifications.mail_config import config, signing_in
from workloads.notifications.rules import NOTIFICATION_TYPES
from workloads.notifications.services import channels

pytestmark = pytest.mark.enable_socket


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("from", "a@example.org\r\nBcc: x@evil.example", "bad_address"),
        ("fromDisplayName", "Rung\r\nBcc: x@evil.example", "control_character"),
        ("subject", "Rung\nBcc: x@evil.example", "control_character"),
        ("subject", "{{ .secret }}", "unknown_place"),
        ("recipients", ["a@example.org, b@example.org"], "bad_address"),
        ("smtpHost", "mail.example.org/path", "bad_host"),
        ("smtpHost", "0x7f.1", "bad_host"),
        ("apiToken", "xoxb", "unsupported"),
        ("useAttachments", True, "unsupported"),
    ],
)
def test_t59_a_configuration_that_could_inject_or_promises_too_much_is_refused_at_its_field(
    db: None, field: str, value: Any, code: str
) -> None:
    with pytest.raises(ValidationFailed) as refused:
        channels.add_channel(name="other", type_="email", config=config(2525, **{field: value}), actor=SYSTEM)
    (problem,) = refused.value.problems
    assert problem.code == code
    assert problem.pointer.startswith(f"/config/{field}")


@pytest.mark.django_db
def test_a_bound_key_reaches_only_subscriptions_made_under_its_bounds(alice: User, llm_team: Project) -> None:
    channels.add_channel(name="mail", type_="email", config=config(1), actor=SYSTEM)
    owner = acting(alice)
    bound = replace(owner, limits=CredentialLimits("key", project_id=llm_team.pk))
    events = [{"category": kind.category, "types": [kind.type]} for kind in NOTIFICATION_TYPES[:1]]
    all_projects = channels.subscribe(events=events, names=["mail"], actor=owner)
    own = channels.subscribe(events=events, names=["mail"], actor=bound)
    assert list(channels.subscriptions_of(bound)) == [own]
    for act in (
        lambda: channels.unsubscribe(key=all_projects.pk, actor=bound),
        lambda: channels.change_subscription(key=all_projects.pk, events=events, names=[], actor=bound),
    ):
        with pytest.raises(NotFound):
            act()
    all_projects.refresh_from_db()
    assert (all_projects.project_id, list(all_projects.channels.all())) == (None, list(own.channels.all()))
    channels.unsubscribe(key=own.pk, actor=bound)
    assert list(channels.subscriptions_of(owner)) == [all_projects]


@pytest.mark.django_db
def test_bound_keys_share_the_maximum_of_their_owner(
    alice: User, llm_team: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "MOST_SUBSCRIPTIONS", 1)
    channels.subscribe(events=[], names=[], actor=acting(alice))
    bound = replace(acting(alice), limits=CredentialLimits("key", project_id=llm_team.pk))
    with pytest.raises(Conflict, match="maximum of 1"):
        channels.subscribe(events=[], names=[], actor=bound)


def test_a_password_stays_sealed_and_is_never_sent_elsewhere(
    db: None, admin: User, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    actor = acting(admin)
    row = channels.add_channel(name="", type_="email", config=signing_in(password="hunter-2!"), actor=actor)
    row = channels.change_channel(row=row, type_="email", config={"subject": "x"}, actor=actor, merge=True)
    assert channels.password_of(row) == "hunter-2!"
    for change in ({"smtpHost": "evil.example"}, {"smtpPort": 25}, {"username": "other"}):
        with pytest.raises(ValidationFailed) as refused:
            channels.change_channel(row=row, type_="email", config=change, actor=actor, merge=True)
        assert refused.value.problems[0].pointer == "/config/password"
    bare = {"smtpTlsEnabled": False}
    with pytest.raises(ValidationFailed):
        channels.change_channel(row=row, type_="email", config=bare, actor=actor, merge=True)
    told = [json.dumps(each.detail) for each in AuditRecord.objects.all()]
    assert "hunter" not in json.dumps([*told, row.config, row.sealed, caplog.text])


def test_a_password_goes_only_to_a_server_whose_certificate_is_trusted(
    db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root, context = authority()
    with mail_server(tls=context) as server:
        right, wrong = (signing_in(smtpPort=server.port, password=each) for each in ("right", "wrong"))
        assert not channels.works(type_="email", config=right, actor=SYSTEM)
        assert server.passwords == []
        (tmp_path / "root.pem").write_text(root)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "root.pem"))
        assert channels.works(type_="email", config=right, actor=SYSTEM)
        assert not channels.works(type_="email", config=wrong, actor=SYSTEM)
        assert server.passwords == ["\0u\0right", "\0u\0wrong"]
        server.tls, server.passwords = None, []
        assert not channels.works(type_="email", config=right, actor=SYSTEM), "it offers no TLS"
        assert server.passwords == []
    told = AuditRecord.objects.filter(action="notifications.try_channel")
    assert sorted(each.result for each in told) == ["Failed", "Failed", "Failed", "Succeeded"]
    assert not any("right" in json.dumps(each.detail) for each in told)


def test_a_password_is_sealed_again_with_the_credentials_of_clusters(db: None, settings: Any) -> None:
    row = channels.add_channel(name="", type_="email", config=signing_in(password="hunter-2!"), actor=SYSTEM)
    old, new = settings.RUNG_CREDENTIAL_KEYS[0], new_key()
    settings.RUNG_CREDENTIAL_KEYS = [new, old]
    assert rotate_credentials(actor=SYSTEM).renewed == 1
    settings.RUNG_CREDENTIAL_KEYS = [new]
    row.refresh_from_db()
    assert channels.password_of(row) == "hunter-2!"
