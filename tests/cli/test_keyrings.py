"""Where the secret is kept when this machine has a keyring: there, and nowhere else."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.cli.conftest import Rung
from tests.cli.fake_portal import Answer, portal_that

SECRET = "canary-of-the-keyring"
NOTHING = Answer(body={"priorities": []})


class KeyringError(Exception):
    """The library's error."""


@dataclass
class Ring:
    """The library `keyring` as far as it is used: an optional one, so it may not be installed here."""

    priority: float = 5.0
    locked: bool = False
    held: dict[tuple[str, str], str] = field(default_factory=dict)

    def get_keyring(self) -> SimpleNamespace:
        return SimpleNamespace(priority=self.priority)

    def set_password(self, service: str, name: str, text: str) -> None:
        self._opened()
        self.held[service, name] = text

    def get_password(self, service: str, name: str) -> str | None:
        self._opened()
        return self.held.get((service, name))

    def delete_password(self, service: str, name: str) -> None:
        self._opened()
        del self.held[service, name]

    def _opened(self) -> None:
        if self.locked:
            raise KeyringError("it is locked")


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    """Installed on this machine."""
    found, library, errors = Ring(), ModuleType("keyring"), ModuleType("keyring.errors")
    for name in ("get_keyring", "set_password", "get_password", "delete_password"):
        setattr(library, name, getattr(found, name))
    vars(errors)["KeyringError"] = KeyringError
    vars(library)["errors"] = errors
    monkeypatch.setitem(sys.modules, "keyring", library)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    return found


def sign_in(rung: Rung, url: str) -> str:
    """What signing in says on stderr."""
    ended = rung("login", url, "--client-id", "me", "--secret-stdin", stdin=SECRET)
    assert ended.code == 0
    return ended.err


def test_secret_and_token_are_in_the_keyring_and_the_file_holds_neither(rung: Rung, home: Path, ring: Ring) -> None:
    with portal_that(NOTHING) as portal:
        sign_in(rung, portal.url)
        (kept,) = json.loads((home / "credentials.json").read_text()).values()
        assert (kept["secret"], kept["token"], kept["keyring"]) == ("", "", True)
        (text,) = ring.held.values()
        assert json.loads(text)["secret"] == SECRET
        assert rung("priorities").code == 0
    assert portal.tokens == 1


def test_signing_out_takes_it_out(rung: Rung, home: Path, ring: Ring) -> None:
    with portal_that(NOTHING) as portal:
        sign_in(rung, portal.url)
        assert rung("logout").code == 0
    assert ring.held == {}


def test_a_keyring_that_is_locked_leaves_the_secret_in_the_file_and_says_so(rung: Rung, home: Path, ring: Ring) -> None:
    ring.locked = True
    with portal_that(NOTHING) as portal:
        assert "stored in the file" in sign_in(rung, portal.url)
        assert SECRET in (home / "credentials.json").read_text()
        assert rung("priorities").code == 0


def test_a_keyring_that_protects_nothing_counts_as_none(rung: Rung, home: Path, ring: Ring) -> None:
    ring.priority = 0.5
    with portal_that(NOTHING) as portal:
        sign_in(rung, portal.url)
    assert ring.held == {}
    assert SECRET in (home / "credentials.json").read_text()


@pytest.mark.parametrize("lost", ["locked", "emptied", "uninstalled"])
def test_what_cannot_be_had_from_it_ends_as_signed_out(
    rung: Rung, home: Path, ring: Ring, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    with portal_that(NOTHING) as portal:
        sign_in(rung, portal.url)
        if lost == "locked":
            ring.locked = True
        elif lost == "emptied":
            ring.held.clear()
        else:
            monkeypatch.setitem(sys.modules, "keyring", None)
        ended = rung("priorities")
    assert ended.code == 3
    assert "rung login" in ended.err
    assert "keyring" in ended.err
