"""T70: secrets in arguments, open files, plain http, unchecked certificates, redirects; the token is never printed."""

import stat
from pathlib import Path

import pytest

from rung_cli.config import credential_store
from rung_cli.errors import UsageError
from rung_cli.http.addresses import validate_address
from tests.cli.conftest import Rung
from tests.cli.fake_portal import TOKEN, Answer, portal_that

SECRET = "s3cret-canary"
NOTHING = Answer(body={"priorities": []})


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    "args",
    [
        ("login", "--secret", SECRET),
        ("login", f"--client-secret={SECRET}"),
        ("login", "https://rung.example", "--password", SECRET),
        ("--token", SECRET, "list"),
        ("list", f"--token={SECRET}"),
        ("login", "https://rung.example", SECRET),
        ("login", "https://rung.example", f"--anything={SECRET}"),
        ("login", f"https://me:{SECRET}@rung.example"),
    ],
)
def test_t70_a_secret_among_the_arguments_is_refused_and_not_repeated(rung: Rung, args: tuple[str, ...]) -> None:
    ended = rung(*args)
    assert ended.code == 64
    assert SECRET not in ended.out + ended.err
    assert "secret" in ended.err.lower()


def test_t70_a_secret_in_a_variables_value_is_warned_of(rung: Rung, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNG_CLIENT_ID", "pipeline")
    monkeypatch.setenv("RUNG_CLIENT_SECRET", SECRET)
    project = Answer(body={"projects": [{"id": "1", "name": "p", "clusterId": "c"}], "next": None})
    with portal_that(project, Answer(202, {"name": "x", "spec": {}})) as portal:
        ended = rung("--url", portal.url, "submit", "x", "-p", "p", "-i", "a/b:1", "-e", "HF_TOKEN=hf_canary")
    assert ended.code == 0, ended.err
    assert "-e HF_TOKEN" in ended.err
    assert "hf_canary" not in ended.err


@pytest.mark.parametrize("flag", ["-k", "--insecure", "--insecure-skip-tls-verify"])
def test_t70_certificates_are_always_checked(rung: Rung, flag: str) -> None:
    ended = rung("list", flag)
    assert ended.code == 64
    assert "--ca-file" in ended.err


@pytest.mark.parametrize(
    ("address", "is_taken"),
    [
        ("https://rung.example/", True),
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000", True),
        ("http://localhost", True),
        ("http://rung.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://10.0.0.1", False),
        ("https://me@rung.example", False),
        ("https://rung.example/?x=1", False),
        ("ftp://rung.example", False),
        ("rung.example", False),
        ("https://[::1", False),
    ],
)
def test_t70_plain_http_goes_to_this_machine_only(address: str, *, is_taken: bool) -> None:
    if is_taken:
        assert validate_address(address) == address.rstrip("/")
    else:
        with pytest.raises(UsageError):
            validate_address(address)


def test_t70_plain_http_elsewhere_needs_leave_and_is_warned_of(rung: Rung) -> None:
    assert "not encrypted" in rung("--url", "http://rung.example", "list").err
    ended = rung("--url", "http://192.0.2.1:9", "--insecure-http", "--retries", "0", "--request-timeout", "0.1", "list")
    assert "warning: http://192.0.2.1:9 is not encrypted" in ended.err


def test_t70_a_profiles_leave_is_for_its_own_address_only(rung: Rung, home: Path) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text("profiles: {default: {url: 'http://192.0.2.1:9', insecure_http: true}}")
    (home / "config.yaml").chmod(0o600)
    short = ("--retries", "0", "--request-timeout", "0.1")
    assert "192.0.2.1:9 is not encrypted: the secret" in rung(*short, "list").err
    elsewhere = rung("--url", "http://192.0.2.2:9", *short, "list")
    assert (elsewhere.code, elsewhere.err.count("192.0.2.2:9 is not encrypted.")) == (64, 1)


def test_t70_no_redirect_gets_the_token(rung: Rung, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNG_CLIENT_ID", "pipeline")
    monkeypatch.setenv("RUNG_CLIENT_SECRET", SECRET)
    with portal_that(NOTHING) as thief:
        sent_on = Answer(302, None, {"Location": f"{thief.url}/api/v1/workload-priorities"})
        with portal_that(sent_on) as portal:
            ended = rung("--url", portal.url, "priorities")
    assert ended.code == 1
    assert "does not follow redirects" in ended.err
    assert (thief.requested, thief.tokens) == ([], 0)


def test_t70_what_is_kept_for_one_address_goes_to_no_other(rung: Rung, home: Path) -> None:
    with portal_that(NOTHING) as portal, portal_that(NOTHING) as other:
        assert rung("login", portal.url, "--client-id", "me", "--secret-stdin", stdin=SECRET).code == 0
        ended = rung("--url", other.url, "priorities")
    assert ended.code == 3
    assert (other.requested, other.tokens) == ([], 0)


def test_t70_a_file_that_others_can_read_is_shut_and_warned_of(rung: Rung, home: Path) -> None:
    with portal_that(NOTHING) as portal:
        rung("login", portal.url, "--client-id", "me", "--secret-stdin", stdin=SECRET)
        kept = home / "credentials.json"
        assert (mode_of(home), mode_of(kept), mode_of(home / "config.yaml")) == (0o700, 0o600, 0o600)
        kept.chmod(0o644)
        ended = rung("priorities")
    assert ended.code == 0
    assert "was readable by other users" in ended.err
    assert mode_of(kept) == 0o600


@pytest.mark.parametrize("name", ["config.yaml", "credentials.json"])
def test_t70_a_file_that_others_can_write_is_not_believed(rung: Rung, home: Path, name: str) -> None:
    with portal_that(NOTHING) as portal:
        rung("login", portal.url, "--client-id", "me", "--secret-stdin", stdin=SECRET)
        (home / name).chmod(0o666)
        ended = rung("priorities")
    assert ended.code == 64
    assert "is writable by other users" in ended.err


def test_t70_secrets_in_the_configuration_are_refused(rung: Rung, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(f"profiles: {{default: {{url: 'https://x.example', client_secret: {SECRET}}}}}")
    (home / "config.yaml").chmod(0o600)
    ended = rung("priorities")
    assert (ended.code, SECRET in ended.err) == (64, False)


def test_t70_nothing_ever_prints_the_token_or_the_secret(rung: Rung, monkeypatch: pytest.MonkeyPatch) -> None:
    with portal_that(NOTHING, Answer(500, {"code": 500, "message": "broken"}), Answer(200, [])) as portal:
        said = [
            rung("--debug", "login", portal.url, "--client-id", "me", "--secret-stdin", stdin=SECRET),
            rung("--debug", "priorities"),
            rung("--debug", "priorities", "--retries", "0"),
            rung("--debug", "priorities"),
            rung("--debug", "logout"),
        ]
    assert [each.code for each in said] == [0, 0, 4, 70, 0]
    assert "debug: GET /api/v1/workload-priorities" in said[1].err
    text = "".join(each.out + each.err for each in said)
    assert SECRET not in text
    assert TOKEN not in text
    assert SECRET not in repr(credential_store.Credentials("https://x.example", "me", SECRET, TOKEN))
