"""Bad configuration is found at start, under an id that can be looked up."""

import logging
from pathlib import Path

import pytest
from django.core.checks import run_checks
from pytest_django.fixtures import Settings

from portal.kit.messaging.tasks import retry_transient
from portal.kit.security import logging_config
from portal.kit.security.logging_config import HIDDEN, redact
from tests.support.processes import environment, manage


def found() -> set[str]:
    return {message.id for message in run_checks(tags=["rung"]) if message.id}


def test_a_good_configuration_has_nothing_to_say() -> None:
    assert found() == set()


def test_an_empty_secret_key(settings: Settings) -> None:
    settings.SECRET_KEY = ""
    assert found() == {"core.E001"}


def test_a_data_folder_that_is_not_there(settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path / "absent"
    assert found() == {"core.E002"}


def test_debug_pages_for_strangers(settings: Settings) -> None:
    settings.DEBUG, settings.ALLOWED_HOSTS = True, ["rung.example.org", "localhost"]
    assert found() == {"core.E003"}


def test_a_host_of_the_clients_choice(settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    assert found() == {"core.W004"}


def test_without_a_key_no_process_starts(tmp_path: Path) -> None:
    env = {**environment(tmp_path), "RUNG_SECRET_KEY": ""}
    with pytest.raises(AssertionError, match="SECRET_KEY"):
        manage(env, "check")


def test_a_key_kept_in_the_data_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "secret-key").write_text("kept-0123456789-abcdefghijklmnopqrstuvwxyz-0123456789\n")
    manage({**environment(tmp_path), "RUNG_SECRET_KEY": ""}, "check")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        pytest.param({"password": "x"}, {"password": HIDDEN}, id="by its name"),
        pytest.param({"list": [{"client_secret": "x"}]}, {"list": [{"client_secret": HIDDEN}]}, id="deep inside"),
        pytest.param("Authorization: Bearer abcdefgh12345", f"Authorization: {HIDDEN}", id="a bearer token in text"),
        pytest.param("redis://:s3cr3t@host/0", f"redis://{HIDDEN}@host/0", id="a password without a user"),
        pytest.param(
            "could not reach postgres://rung:s3cr3t@db/rung",
            f"could not reach postgres://{HIDDEN}@db/rung",
            id="a password in an address",
        ),
        pytest.param("failed with password=s3cr3t", f"failed with {HIDDEN}", id="a password written out"),
        pytest.param({"tokens": 4}, {"tokens": 4}, id="a number is no secret"),
        pytest.param({"name": "train"}, {"name": "train"}, id="everything else stays"),
    ],
)
def test_t64_secrets_are_redacted(given: object, kept: object) -> None:
    assert redact(given) == kept


def test_t64_a_log_line_of_a_library_holds_no_secret() -> None:
    formatter = logging_config.dict_config(level="INFO", as_json=True)["formatters"]["rung"]
    make = formatter.pop("()")
    line = logging.LogRecord("urllib3", logging.INFO, "", 0, "sent %s", ("Bearer abcdefgh12345",), None)
    assert "abcdefgh" not in make(**formatter).format(line)


def test_a_retry_is_bounded_and_only_for_the_named_error() -> None:
    arguments = retry_transient(ConnectionError)
    assert arguments["autoretry_for"] == (ConnectionError,)
    assert arguments["max_retries"] * arguments["retry_backoff_max"] < 600
    assert arguments["retry_jitter"]


def test_debugging_reads_templates_at_every_request(tmp_path: Path) -> None:
    code = "from django.template import engines; print('cached' in str(engines['django'].engine.loaders))"
    shown = manage({**environment(tmp_path), "RUNG_DEBUG": "true"}, "shell", "--no-imports", "-c", code)
    assert shown.strip() == "False"
