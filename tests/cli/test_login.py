"""Signing in, out, and being somebody."""

from pathlib import Path
from typing import Any

from tenants.organisation.models import Project
from tests.cli.conftest import Account, Rung


def test_from_signing_in_to_signing_out(
    rung: Rung, live_server: Any, member: Account, llm_team: Project, home: Path
) -> None:
    requested = ("login", live_server.url, "--client-id", member.client_id, "--secret-stdin", "--project", "llm-team")
    assert rung(*requested, stdin="wrong").code == 3
    assert not home.exists()
    assert rung(*requested, stdin=f"{member.secret}\n").code == 0
    assert member.secret not in (home / "config.yaml").read_text()

    me = rung("whoami", "-o", "json").data
    assert (me["name"], me["kind"]) == ("pipeline", "service-account")
    assert [(each["role"], each["scopeName"]) for each in me["roles"]] == [("member", "llm-team")]
    assert "member in project llm-team" in rung("whoami").out

    assert rung("logout").code == 0
    ended = rung("whoami")
    assert (ended.code, "rung login" in ended.err) == (3, True)


def test_two_profiles_are_two_portals(rung: Rung, live_server: Any, member: Account) -> None:
    requested = ("login", live_server.url, "--client-id", member.client_id, "--secret-stdin")
    rung("--profile", "first", *requested, "--project", "llm-team", stdin=member.secret)
    rung(*requested, "--profile", "second", "--token-only", stdin=member.secret)
    assert rung("whoami").code == 0  # the first one is the default
    assert rung("whoami", "--profile", "second").code == 0
    ended = rung("whoami", "--profile", "third")
    assert (ended.code, "first, second" in ended.err) == (64, True)
