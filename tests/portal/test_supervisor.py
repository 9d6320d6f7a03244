"""The demo's processes live and die with the one that started them."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import uvicorn

from portal.demo import __main__
from portal.demo.supervisor import Child, SourceFiles, Supervisor, end_group
from tests.support.processes import environment, eventually
from tests.support.real import free_port
from tests.support.repository import ROOT

SCRIPT = """
import json, signal, sys, threading
from pathlib import Path
from portal.demo.supervisor import Child, Supervisor
folder, port, commands = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
children = [Child(name, tuple(command)) for name, command in commands.items()]
say = lambda text: print(text, flush=True)
Supervisor(children, folder=folder, root=folder, say=say).run(stop, url=f"http://127.0.0.1:{port}/", ready="READY")
"""
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def port(socket_enabled: None) -> int:
    return free_port()


@pytest.fixture
def parent(tmp_path: Path, port: int) -> Iterator["subprocess.Popen[str]"]:
    """A supervisor of a web server and a process that only sleeps."""
    web = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    commands = json.dumps({"web": web, "sleeper": SLEEPER})
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(port), commands]
    env = {**environment(tmp_path), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, process_group=0)
    eventually(lambda: pid_of(tmp_path, "sleeper"))
    yield process
    with suppress(ProcessLookupError):
        process.kill()
    process.communicate()


def pid_of(folder: Path, name: str) -> int:
    file = folder / "pids" / f"{name}.pid"
    return int(file.read_text() or 0) if file.exists() else 0


def alive(pid: int) -> bool:
    """True while the process runs; a zombie does not."""
    stat = Path(f"/proc/{pid}/stat")
    with suppress(FileNotFoundError, ProcessLookupError):
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_it_says_once_that_everything_is_ready(parent: "subprocess.Popen[str]") -> None:
    assert parent.stdout
    assert parent.stdout.readline().strip() == "READY"


def test_a_killed_child_comes_back_as_another_process(parent: "subprocess.Popen[str]", tmp_path: Path) -> None:
    before = pid_of(tmp_path, "sleeper")
    os.kill(before, signal.SIGKILL)
    eventually(lambda: pid_of(tmp_path, "sleeper") not in {0, before})
    assert alive(pid_of(tmp_path, "sleeper"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_no_child_outlives_its_parent(parent: "subprocess.Popen[str]", tmp_path: Path, number: int) -> None:
    pids = [pid_of(tmp_path, name) for name in ("web", "sleeper")]
    assert all(map(alive, pids))
    parent.send_signal(number)
    eventually(lambda: not any(map(alive, pids)))
    parent.wait(15)


def test_the_ids_of_children_are_gone_after_an_orderly_end(parent: "subprocess.Popen[str]", tmp_path: Path) -> None:
    parent.terminate()
    parent.wait(15)
    assert list((tmp_path / "pids").iterdir()) == []


def test_a_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "secret-key"
    __main__.stored_secret_key(file, "the first")
    __main__.stored_secret_key(file, "the second")
    assert file.read_text() == "the first"
    assert file.stat().st_mode & 0o777 == 0o600


def test_only_its_owner_may_enter_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ) | {"RUNG_DATA": str(tmp_path / "data")})
    (tmp_path / "data").mkdir(mode=0o755)
    folder, _port = __main__.configure(debug=False)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_data_folder_belongs_to_one_demo_at_a_time(tmp_path: Path) -> None:
    first = __main__.lock_data_folder(tmp_path)
    assert first
    assert __main__.lock_data_folder(tmp_path) is None
    fcntl.flock(first, fcntl.LOCK_UN)
    first.close()


def test_a_taken_port_is_noticed_before_anything_starts(port: int) -> None:
    assert not __main__.port_in_use(port)
    with socket.create_server(("127.0.0.1", port)):
        assert __main__.port_in_use(port)


@pytest.mark.parametrize("name", ["admin", "alice", "bob", "charlie"])
def test_the_greeting_names_address_password_and_people(name: str) -> None:
    text = __main__.greeting(8123, "pass-phrase")
    assert all(part in text for part in ("http://127.0.0.1:8123/", "pass-phrase", name))


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """A supervisor of one sleeper, in this process."""
    supervisor = Supervisor([Child("sleeper", tuple(SLEEPER))], folder=tmp_path, root=ROOT, say=lambda _text: None)
    yield supervisor
    supervisor.end()


def test_who_keeps_dying_is_started_later_and_later() -> None:
    child = Child("flapping", ("false",))
    pauses = []
    for now in range(8):
        child.started_at = now
        child.died(now + 1)
        pauses.append(child.pause)
    assert pauses == [1, 2, 4, 5, 5, 5, 5, 5]


def test_who_had_lived_long_is_started_again_soon() -> None:
    child = Child("settled", ("true",), started_at=0, pause=10)
    child.died(3600)
    assert child.pause == 0.5


def test_a_dead_child_waits_for_its_turn(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.look()
    before = pid_of(tmp_path, "sleeper")
    os.kill(before, signal.SIGKILL)
    eventually(lambda: not alive(before))
    supervisor.look()
    assert supervisor.children[0].process is None
    supervisor.children[0].due_at = 0
    supervisor.look()
    assert alive(pid_of(tmp_path, "sleeper"))


def test_a_child_that_ignores_the_polite_way_is_ended_all_the_same(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, process_group=0)
    assert process.stdout
    process.stdout.readline()
    process.terminate()
    end_group(process, 0.2)
    assert not alive(process.pid)
    process.stdout.close()


def test_who_needs_longer_to_end_is_given_it_and_the_others_are_not(tmp_path: Path) -> None:
    tidying = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1.5), sys.exit(0)));"
    ready = "open(sys.argv[1], 'w').close(); time.sleep(600)"
    children = [
        Child(name, (sys.executable, "-c", tidying + ready, str(tmp_path / name)), grace=grace)
        for name, grace in (("brief", 0.2), ("patient", 30.0))
    ]
    supervisor = Supervisor(children, folder=tmp_path, root=tmp_path, say=print)
    supervisor.look()
    eventually(lambda: all((tmp_path / each.name).exists() for each in children))
    supervisor.end()
    assert [each.process and each.process.returncode for each in children] == [-signal.SIGKILL, 0]


def test_a_running_supervisor_stops_when_told(supervisor: Supervisor, tmp_path: Path, socket_enabled: None) -> None:
    stop = threading.Event()
    threading.Timer(1.0, stop.set).start()
    supervisor.run(stop, url="http://127.0.0.1:1/", ready="never")
    assert list((tmp_path / "pids").iterdir()) == []


def test_an_edited_file_restarts_only_the_children_that_run_our_code(tmp_path: Path) -> None:
    source = tmp_path / "portal" / "edited.py"
    source.parent.mkdir()
    source.write_text("first = 1\n")
    ours, other = Child("ours", tuple(SLEEPER), runs_our_code=True), Child("other", tuple(SLEEPER))
    said: list[str] = []
    sources = SourceFiles(tmp_path)
    supervisor = Supervisor([ours, other], folder=tmp_path, root=tmp_path, say=said.append, sources=sources)
    try:
        supervisor.look()
        before = pid_of(tmp_path, "ours"), pid_of(tmp_path, "other")
        supervisor.reload()
        assert (said, ours.process is not None) == ([], True)
        source.write_text("second = 22\n")
        supervisor.reload_at = 0
        supervisor.reload()
        assert said == ["portal/edited.py changed: restarting ours"]
        assert not alive(before[0])
        ours.due_at = 0
        supervisor.look()
        assert (alive(pid_of(tmp_path, "ours")), pid_of(tmp_path, "other")) == (True, before[1])
    finally:
        supervisor.end()


def test_sources_change_when_a_file_is_added_edited_or_deleted(tmp_path: Path) -> None:
    package = tmp_path / "scheduling"
    package.mkdir()
    sources = SourceFiles(tmp_path)
    added = package / "added.py"
    added.touch()
    (package / "notes.txt").touch()
    assert sources.changed() == [added]
    assert sources.changed() == []
    os.utime(added, (1, 1))
    assert sources.changed() == [added]
    added.unlink()
    assert sources.changed() == [added]


def test_reloading_starts_the_web_process_with_a_reloader_and_the_rest_by_the_supervisor() -> None:
    plain, reloading = __main__.children(8123), __main__.children(8123, reload=True)
    assert [child.name for child in reloading if "--reload" in child.command] == ["web"]
    assert [child.name for child in reloading if child.runs_our_code] == ["worker", "beat", "observer"]
    assert [child.name for child in plain if "--reload" in child.command] == []


def dockerfile_command() -> list[str]:
    _, _, written = (ROOT / "Dockerfile").read_text().partition("CMD ")
    command: list[str] = json.loads(written.replace("\\\n", ""))
    return command


@pytest.mark.parametrize(
    "command", [__main__.children(8123)[0].command, dockerfile_command()], ids=["demo", "container"]
)
def test_web_does_not_name_the_server_it_runs_on(command: Sequence[str]) -> None:
    arguments = list(command[list(command).index("portal.asgi:application") :])
    assert uvicorn.main.make_context("uvicorn", arguments).params["server_header"] is False
