"""Every process outlives its database: it comes back by itself, as the same process, within seconds."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from celery import current_app

from tests.support import postgres
from tests.support.postgres import Server
from tests.support.processes import environment, eventually, manage, running
from tests.support.real import free_port

BEAT = ("celery", "-A", "portal", "beat", "--pidfile", "")
WORKER = ("celery", "-A", "portal", "worker", "--concurrency", "1", "--without-gossip", "--without-mingle")
OBSERVER = ("django", "observer")
AWAY_SECONDS = 8.0
PATIENCE = 100.0  # processes start slowly on a busy machine
LONGEST_PAUSE = 20.0  # of a process after the database is back, likewise

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def migrated(postgres_dump: Path) -> Iterator[Server]:
    """A PostgreSQL of this module, with the tables of the portal."""
    with postgres.running() as server:
        postgres.load(server.folder, "postgres", postgres_dump)
        ask(server, "CHECKPOINT")  # a crash may take what this server has not written yet
        yield server


@pytest.fixture
def database(migrated: Server) -> Iterator[Server]:
    """The same, running and without heartbeats."""
    ask(migrated, "DELETE FROM core_heartbeat")
    yield migrated
    if not migrated.is_running():
        migrated.start()


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the collected static files, which pages name."""
    folder = tmp_path_factory.mktemp("static")
    manage(environment(folder, RUNG_STATIC_ROOT=str(folder / "root")), "collectstatic", "-v", "0", "--noinput")
    return str(folder / "root")


@pytest.fixture
def env(database: Server, tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path, DATABASE_URL=address(database))


def address(server: Server) -> str:
    return postgres.url(server.folder, "postgres")


def ask(server: Server, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(host=str(server.folder), user="rung", dbname="postgres", autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def works(server: Server, name: str) -> bool:
    """Has it worked in the last two seconds?"""
    since = "SELECT 1 FROM core_heartbeat WHERE name = '{}' AND at > now() - interval '2 seconds'"
    return bool(ask(server, since.format(name)))


def send_canary(broker: str) -> None:
    with current_app.connection_for_write(broker) as connection:
        current_app.send_task("core.canary", args=["notify"], queue="notify", connection=connection)


@contextmanager
def away(server: Server, seconds: float = AWAY_SECONDS) -> Iterator[None]:
    """The database is stopped as if it had crashed, for so long at least, and started again."""
    server.stop("immediate")
    back_at = time.monotonic() + seconds
    yield
    time.sleep(max(0.0, back_at - time.monotonic()))
    server.start()


def test_the_beat_outlives_its_database(database: Server, env: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "beat.log"
    with running(env, *BEAT, log=log) as beat:
        eventually(lambda: works(database, "beat"), seconds=PATIENCE, log=log)
        with away(database):
            pass
        eventually(lambda: works(database, "beat"), seconds=LONGEST_PAUSE, log=log)
        assert beat.poll() is None
    said = log.read_text()
    assert [said.count(event) for event in ("beat.database_away", "beat.database_back", "Traceback")] == [1, 1, 0]


def test_the_beat_waits_for_a_database_that_is_not_there_yet(
    database: Server, env: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "beat.log"
    ask(database, "DELETE FROM django_celery_beat_periodictask")
    database.stop("immediate")
    with running(env, *BEAT, log=log) as beat:
        eventually(lambda: "beat.database_away" in read(log), seconds=PATIENCE, log=log)
        database.start()
        eventually(lambda: works(database, "beat"), seconds=LONGEST_PAUSE, log=log)
        assert beat.poll() is None
    assert ask(database, "SELECT 1 FROM django_celery_beat_periodictask WHERE name = 'workloads.sweep'")


def test_the_beat_ends_at_once_when_it_is_to_end_without_a_database(
    database: Server, env: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "beat.log"
    with running(env, *BEAT, log=log) as beat:
        eventually(lambda: works(database, "beat"), seconds=PATIENCE, log=log)
        with away(database, 0):
            eventually(lambda: "beat.database_away" in read(log), log=log)
            beat.terminate()
            assert beat.wait(5) == 0


def test_workers_and_observers_outlive_their_database(
    database: Server, env: dict[str, str], redis_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    env["RUNG_BROKER_URL"] = redis_url
    with running(env, *WORKER, log=log) as worker, running(env, *OBSERVER, log=log) as observer:
        send_canary(redis_url)
        eventually(lambda: works(database, "worker:notify"), seconds=PATIENCE, log=log)
        eventually(lambda: works(database, "observer"), seconds=PATIENCE, log=log)
        with away(database):
            send_canary(redis_url)  # fails, as a task does without a database
        eventually(lambda: works(database, "observer"), seconds=LONGEST_PAUSE, log=log)
        send_canary(redis_url)
        eventually(lambda: works(database, "worker:notify"), seconds=LONGEST_PAUSE, log=log)
        assert [worker.poll(), observer.poll()] == [None, None]


def test_the_portal_says_what_is_missing_within_a_second_and_comes_back(
    database: Server, env: dict[str, str], static: str, tmp_path: Path, socket_enabled: None
) -> None:
    log, port = tmp_path / "web.log", free_port()
    env |= {"RUNG_STATIC_ROOT": static, "RUNG_DATABASE_POOL": "true"}
    web = Web(port)
    with running(env, "uvicorn", "portal.asgi:application", "--port", str(port), log=log) as process:
        eventually(lambda: web.get("/login/")[0] == 200, seconds=PATIENCE, log=log)
        assert "\nrung_database_up 1\n" in web.get("/metrics")[1]
        with away(database):
            web.slowest = 0.0
            for cookie in ("", "rung_session=0123456789abcdefghijklmnopqrstuv"):
                status, body = web.get("/readyz", cookie)
                assert (status, json.loads(body)["missing"]) == (503, ["database"])
                status, body = web.get("/metrics", cookie)
                assert (status, "\nrung_database_up 0\n" in body) == (200, True)
                assert web.get("/healthz", cookie)[0] == 200
            assert web.slowest < 1.0
            assert web.get("/")[0] == 302
            web.slowest = 0.0
            assert web.get("/", "rung_session=0123456789abcdefghijklmnopqrstuv")[0] == 503
            assert web.slowest < 9  # the wait for a pooled connection, once
            assert web.get("/api/v1/workloads", bearer="e30.e30.e30")[0] in {401, 503}
        eventually(lambda: web.get("/login/")[0] == 200, seconds=LONGEST_PAUSE, log=log)
        eventually(lambda: "database" not in json.loads(web.get("/readyz")[1])["missing"], seconds=5, log=log)
        assert process.poll() is None


def test_a_database_that_was_restarted_costs_no_request_its_answer(
    database: Server, env: dict[str, str], static: str, tmp_path: Path, socket_enabled: None
) -> None:
    log, port = tmp_path / "web.log", free_port()
    env |= {"RUNG_STATIC_ROOT": static, "RUNG_DATABASE_POOL": "true"}
    web = Web(port)
    with running(env, "uvicorn", "portal.asgi:application", "--port", str(port), log=log):
        eventually(lambda: web.get("/login/")[0] == 200, seconds=PATIENCE, log=log)
        with away(database, 0):
            pass
        assert [web.get("/login/")[0] for _ in range(5)] == [200] * 5, read(log)


class Web:
    """What the portal answers on a port, and how long that took at most."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.slowest = 0.0

    def get(self, path: str, cookie: str = "", bearer: str = "") -> tuple[int, str]:
        """Status and body; 0 while it does not answer."""
        headers = {"Cookie": cookie, "Authorization": f"Bearer {bearer}"} if bearer else {"Cookie": cookie}
        begun = time.monotonic()
        try:
            with OPENER.open(urllib.request.Request(self.base + path, headers=headers), timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""
        finally:
            self.slowest = max(self.slowest, time.monotonic() - begun)


class Unfollowed(urllib.request.HTTPRedirectHandler):
    """Redirects are answers."""

    def redirect_request(self, *_arguments: object) -> None:
        return None


OPENER = urllib.request.build_opener(Unfollowed)


def read(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""
