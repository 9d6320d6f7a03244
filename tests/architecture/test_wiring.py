"""Names that are only text still lead somewhere: tasks, periodic jobs, queues, migrations, the compose file."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from celery import current_app
from django.conf import settings
from django.db.migrations.loader import MigrationLoader

from tests.support.repository import PACKAGES, ROOT, product_files


@pytest.fixture(scope="module")
def tasks() -> set[str]:
    """Every task of ours that a worker knows."""
    current_app.loader.import_default_modules()
    return {name for name in current_app.tasks if not name.startswith("celery.")}


def woken() -> list[tuple[str, str, str]]:
    """(file, task name, queue) of every `notify_worker(…)` in the product."""
    found = []
    for file in product_files():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "notify_worker":
                queue = next(word.value for word in node.keywords if word.arg == "queue")
                found.append((str(file.relative_to(ROOT)), value_of(node.args[0], file), value_of(queue, file)))
    return found


def value_of(node: ast.expr, file: Path) -> str:
    """A literal, or a constant of the file's module."""
    if isinstance(node, ast.Name):
        module = import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        return str(getattr(module, node.id))
    return str(ast.literal_eval(node))


def test_workers_are_notified_from_several_places() -> None:
    assert len(woken()) >= 2


def test_celery_imports_the_tasks_of_every_feature() -> None:
    files = [file for file in product_files() if file.stem == "tasks"]
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files}
    current_app.loader.import_default_modules()
    assert modules <= set(sys.modules)


@pytest.mark.parametrize(("file", "task", "queue"), woken())
def test_a_wake_up_finds_its_task_and_queue(tasks: set[str], file: str, task: str, queue: str) -> None:
    assert task in tasks
    assert queue in settings.QUEUES


@pytest.mark.parametrize("entry", settings.CELERY_BEAT_SCHEDULE.values(), ids=list(settings.CELERY_BEAT_SCHEDULE))
def test_the_beat_sends_only_what_exists(tasks: set[str], entry: dict[str, object]) -> None:
    assert entry["task"] in tasks


def test_every_task_is_named_after_its_app_and_routed_to_a_queue_of_ours(tasks: set[str]) -> None:
    routes = {task: current_app.amqp.router.route({}, task)["queue"].name for task in tasks}
    assert {task for task, queue in routes.items() if queue not in settings.QUEUES} == set()
    assert {task.split(".")[0] for task in tasks} <= {"audit", "clusters", "workloads", "core"}


@pytest.mark.parametrize("app", ["core", "audit", "clusters", "tenants", "workloads"])
def test_an_app_has_one_migration_until_the_first_release(app: str) -> None:
    assert [name for label, name in MigrationLoader(None).disk_migrations if label == app] == ["0001_initial"]


def test_the_scheduling_model_needs_the_standard_library_only_and_numpy_where_a_record_says_why() -> None:
    kai = ROOT / "scheduling" / "rules" / "kai"  # ADR 34
    for file in (ROOT / "scheduling").rglob("*.py"):
        foreign = imported(file) - set(sys.stdlib_module_names) - {"scheduling"}
        foreign -= {"numpy"} if file.parent == kai else set()
        assert not foreign, f"{file}: {foreign}"


def imported(file: Path) -> set[str]:
    """Top-level names of the modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_it_is_for(package: str) -> None:
    inits = [f for f in (ROOT / package).rglob("__init__.py") if f.read_text().strip()]
    assert [str(f.relative_to(ROOT)) for f in inits if not ast.get_docstring(ast.parse(f.read_text()))] == []


def test_nothing_is_called_utils_or_helpers() -> None:
    assert [str(f) for f in product_files() if f.stem in {"utils", "helpers", "manager"}] == []


def test_the_compose_file_is_one() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run([*command, str(ROOT / "docker-compose.yml")], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
