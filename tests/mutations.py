"""Seeded mutations of rules: each breaks one rule, and the tests named beside it must fail. `make mutations` runs all.

Each runs in a temporary copy of the tracked files, never in the checkout. A survivor is a rule without a test.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT, tracked_files

PYTEST: Final = (sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider")
SLOWNESS: Final = ("FailedHealthCheck", "DeadlineExceeded", "Timeout (>")
"""What a busy machine makes fail, which proves nothing."""
WITHOUT_PLUGINS: Final = ("--noconftest", "-o", "addopts=", "-o", "filterwarnings=", "-W", "ignore")
PURE: Final = (
    "tests/scheduling/",
    "tests/workloads/dictionary/test_resolution.py",
    "tests/workloads/policies/test_rules.py",
    "tests/workloads/state/",
    "tests/workloads/intake/test_parsers.py",
)
"""Tests without fixtures of conftest.py and without Django: they start in a second."""
TESTS_FAILED: Final = 1
"""The exit code of pytest when a test failed; any other one than 0 says that the tests did not run."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One broken rule. `old` occurs exactly once in the file; at least one of `tests` fails with `new` in its place."""

    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


_KAI: Final = "scheduling/rules/kai/"
_KAI_TESTS: Final = "tests/scheduling/rules/kai/"
_KUEUE: Final = "scheduling/rules/kueue/"
_KUEUE_TESTS: Final = (
    "tests/scheduling/rules/kueue/test_cohorts.py",
    "tests/scheduling/rules/kueue/test_preemption.py",
)
_RESOLUTION: Final = "workloads/dictionary/rules/resolution.py"
_RESOLUTION_TESTS: Final = ("tests/workloads/dictionary/test_resolution.py",)
_PERMISSIONS: Final = "tenants/access/selectors.py"
_MERGE: Final = "workloads/policies/rules/merge.py"
_POLICY_TESTS: Final = ("tests/workloads/policies/test_rules.py",)
_DIFF: Final = "clusters/sync/rules/diff.py"
_DIFF_TESTS: Final = ("tests/clusters/sync/test_diff.py",)
_ENVIRONMENT: Final = "workloads/intake/rules/environment.py"

MUTATIONS: Final = (
    Mutation(
        "KAI: a queue reclaims up to its fair share only",
        f"{_KAI}reclaim.py",
        "if not (use.allocated + requested).fits_in(fair):",
        "if not use.allocated.fits_in(fair):",
        (f"{_KAI_TESTS}test_reclaim.py",),
    ),
    Mutation(
        "KAI: a queue of higher rank is served first",
        f"{_KAI}order.py",
        "            -queue.rank,\n",
        "            queue.rank,\n",
        (f"{_KAI_TESTS}test_order.py",),
    ),
    Mutation(
        "kube-scheduler: equal priority is neither preempted nor waited for",
        "scheduling/rules/kube/preemption.py",
        "if assignment.group.priority < priority]",
        "if assignment.group.priority <= priority]",
        ("tests/scheduling/rules/kube/test_terminating_and_nominated.py",),
    ),
    Mutation(
        "kube-scheduler: the preemption policy Never preempts nobody",
        "scheduling/rules/kube/preemption.py",
        "capacity = None if group.never_preempts else self._best_node(group, pod.requests)",
        "capacity = self._best_node(group, pod.requests)",
        ("tests/scheduling/rules/kube/test_pods.py",),
    ),
    Mutation(
        "Kueue: a queue that uses exactly its quota does not borrow",
        f"{_KUEUE}capacity.py",
        "(used.gpu > nominal.gpu and",
        "(used.gpu >= nominal.gpu and",
        _KUEUE_TESTS,
    ),
    Mutation(
        "Kueue: the lowest priority is evicted first",
        f"{_KUEUE}state.py",
        "order = (group.priority, -group.age_key,",
        "order = (-group.priority, -group.age_key,",
        _KUEUE_TESTS,
    ),
    Mutation(
        "Volcano: a queue reclaims up to and including its deserved quota",
        "scheduling/rules/volcano/order.py",
        "used.gpu + requested.gpu <= deserved.gpu",
        "used.gpu + requested.gpu < deserved.gpu",
        ("tests/scheduling/rules/volcano/test_reclaim.py",),
    ),
    Mutation(
        "fair share: the surplus goes to the highest rank first",
        "scheduling/state/fair_share.py",
        "(-claim.rank, claim.created, claim.name)",
        "(claim.rank, claim.created, claim.name)",
        ("tests/scheduling/state/test_fair_share.py",),
    ),
    Mutation(
        "minimum runtime: what has run exactly that long may be taken",
        "scheduling/state/min_runtime.py",
        "self._now < started + least",
        "self._now <= started + least",
        (f"{_KAI_TESTS}test_min_runtime.py", "tests/scheduling/rules/volcano/test_min_runtime.py"),
    ),
    Mutation(
        "quota: non-preemptible work stays inside the deserved quota",
        "scheduling/state/queue_usage.py",
        "    return None if preemptible else _over_guarantees(path, uses, needed)\n",
        "    return None\n",
        ("tests/scheduling/state/test_queue_usage.py",),
    ),
    Mutation(
        "dictionary: a value of exactly 100 is non-preemptible",
        "scheduling/model/preemptibility.py",
        "if value >= THRESHOLD",
        "if value > THRESHOLD",
        _RESOLUTION_TESTS,
    ),
    Mutation(
        "dictionary: a pod template is stronger than a policy",
        _RESOLUTION,
        "        (wished.template_priority, Source.POD_TEMPLATE),\n        (policy.priority, Source.POLICY),\n",
        "        (policy.priority, Source.POLICY),\n        (wished.template_priority, Source.POD_TEMPLATE),\n",
        (*_RESOLUTION_TESTS, "tests/workloads/policies/test_policies.py"),
    ),
    Mutation(
        "dictionary: a chosen priority sets preemptibility by the threshold, not by the type",
        _RESOLUTION,
        "if priority_source not in CHOSEN and",
        "if",
        _RESOLUTION_TESTS,
    ),
    Mutation(
        "phases: a stopped workload does not run without a resume",
        "workloads/state/rules.py",
        '"Stopped": frozenset({"Resuming", "Deleting"}),',
        '"Stopped": frozenset({"Resuming", "Deleting", "Running"}),',
        ("tests/workloads/state/test_rules.py",),
    ),
    Mutation(
        "intake: privileged containers are refused",
        _ENVIRONMENT,
        '"privileged": only(allowed=False, why="Privileged containers are not allowed."),',
        '"privileged": boolean,',
        ("tests/workloads/intake/test_parsers.py", "tests/workloads/intake/test_every_pod_place.py"),
    ),
    Mutation(
        "intake: volumes of the node are refused",
        _ENVIRONMENT,
        "**{name: _refusal(why) for name, why in REFUSED.items()}",
        "**dict.fromkeys(REFUSED, lambda value, _place: value)",
        ("tests/workloads/intake/test_parsers.py", "tests/workloads/intake/test_every_pod_place.py"),
    ),
    Mutation(
        "intake: labels of Rung and of controllers are refused",
        "workloads/intake/rules/scalars.py",
        'or (_prefix(key) not in {"", *OWN_LABEL_PREFIXES})',
        "or False",
        ("tests/workloads/intake/test_scope_and_identity.py", "tests/workloads/intake/test_every_pod_place.py"),
    ),
    Mutation(
        "intake: a repeated key is refused",
        "portal/kit/security/strict_yaml.py",
        "            if key in members:\n",
        "            if False:\n",
        ("tests/workloads/intake/test_parsers.py",),
    ),
    Mutation(
        "submission: an idempotency key with another payload is refused",
        "workloads/submission/services.py",
        "if seen.fingerprint != ticket.fingerprint:",
        "if not seen.fingerprint:",
        ("tests/workloads/submission/test_submit.py",),
    ),
    Mutation(
        "submission: what no pool's deserved quota holds is refused when non-preemptible",
        "workloads/forecast/selectors/pool_selection.py",
        "    preemptible = counted is not Preemptibility.NON_PREEMPTIBLE\n",
        "    preemptible = bool(counted)\n",
        ("tests/workloads/submission/test_submit.py",),
    ),
    Mutation(
        "preemption: work since the last checkpoint is lost, not since the start",
        "workloads/state/rules.py",
        "(at - (checkpoint or started))",
        "(at - started)",
        ("tests/workloads/state/test_checkpoints.py",),
    ),
    Mutation(
        "preemption: another queue's workload reclaims",
        "workloads/preemption/services.py",
        "return PreemptionCause.PREEMPT if same else PreemptionCause.RECLAIM",
        "return PreemptionCause.PREEMPT",
        ("tests/workloads/preemption/test_preemptors.py", "tests/workloads/preemption/test_eviction_parts.py"),
    ),
    Mutation(
        "policies: a nearer scope never allows what a wider one forbids",
        _MERGE,
        "if all(value in values for values, _of in wider))",
        "if True)",
        _POLICY_TESTS,
    ),
    Mutation(
        "policies: the default of the nearest scope counts",
        _MERGE,
        'default, default_of = defaults[-1] if defaults else ("", None)',
        'default, default_of = defaults[0] if defaults else ("", None)',
        _POLICY_TESTS,
    ),
    Mutation(
        "access: a role reaches its own project only",
        _PERMISSIONS,
        "return all(own is None or own == there for",
        "return any(own is None or own == there for",
        ("tests/tenants/access/test_permissions.py",),
    ),
    Mutation(
        "access: a read-only access key changes nothing",
        _PERMISSIONS,
        "permissions = self.permissions & READ_PERMISSIONS if limits.read_only else self.permissions",
        "permissions = self.permissions",
        ("tests/tenants/access/test_roles.py",),
    ),
    Mutation(
        "access: a disabled account may do nothing",
        _PERMISSIONS,
        "User.objects.filter(pk=user_id, is_active=True)",
        "User.objects.filter(pk=user_id)",
        ("tests/tenants/access/test_permissions.py",),
    ),
    Mutation(
        "quotas: a limit covers the deserved quota",
        "tenants/quotas/rules.py",
        "limit is not None and limit < deserved:",
        "limit is not None and limit < 0:",
        ("tests/tenants/quotas/test_quota_changes.py",),
    ),
    Mutation(
        "quotas: a deserved quota that projects exceed together cannot be enforced",
        "tenants/quotas/services/quotas.py",
        "    if enforced:\n        raise_problems(",
        "    if not enforced:\n        raise_problems(",
        ("tests/tenants/quotas/test_quota_changes.py",),
    ),
    Mutation(
        "minimum runtime: Rung defers preemptors only where an admin enabled it",
        "workloads/forecast/selectors/runtime_rules.py",
        "return cluster.defer_preemptors and lacks_min_runtime(cluster)",
        "return lacks_min_runtime(cluster)",
        ("tests/workloads/forecast/test_min_runtime_guard.py",),
    ),
    Mutation(
        "quotas: a project may only tighten the time limit of its department",
        "tenants/quotas/services/runtime_rules.py",
        '    if above and minutes > above.minutes:\n        text = _("%(department)s allows',
        '    if above and minutes < 0:\n        text = _("%(department)s allows',
        ("tests/tenants/quotas/test_time_limits.py",),
    ),
    Mutation(
        "sync: a quota is lowered before another is raised",
        "clusters/sync/rules/changes.py",
        "LOWERING, BUILDING, CLEARING, RETIRING = 0, 1, 2, 3",
        "LOWERING, BUILDING, CLEARING, RETIRING = 1, 0, 2, 3",
        ("tests/clusters/sync/test_apply_order.py",),
    ),
    Mutation(
        "sync: a PriorityClass with another value is replaced",
        _DIFF,
        'PRIORITY_CLASS.key: ("/value", "/preemptionPolicy"),',
        'PRIORITY_CLASS.key: ("/preemptionPolicy",),',
        _DIFF_TESTS,
    ),
    Mutation(
        "sync: an object of others is not deleted",
        _DIFF,
        "if ref not in wanted and is_managed(each))",
        "if ref not in wanted)",
        _DIFF_TESTS,
    ),
    Mutation(
        "Kueue: pods never preempt, Kueue does",
        "clusters/flavours/kueue.py",
        'POD_POLICY: Final = "Never"',
        'POD_POLICY: Final = ""',
        ("tests/clusters/flavours/test_kueue_objects.py",),
    ),
    Mutation(
        "KAI: every queue has all three limits",
        "clusters/flavours/kai.py",
        "    if amount is None:\n        return UNLIMITED\n",
        "    if amount is None:\n        return 0\n",
        ("tests/clusters/flavours/test_objects.py",),
    ),
    Mutation(
        "rate limit: exactly so many tries are admitted",
        "portal/kit/security/rate_limit.py",
        "bucket.filter(count__lt=limit)",
        "bucket.filter(count__lte=limit)",
        ("tests/portal/kit/security/test_rate_limit.py",),
    ),
    Mutation(
        "paging: rows of equal value are neither repeated nor skipped",
        "portal/kit/db/keyset_pagination.py",
        'else ("gte", "lte", "gt")',
        'else ("gte", "lt", "gt")',
        ("tests/portal/kit/db/test_keyset_pagination.py",),
    ),
    Mutation(
        "redaction: secrets are found by the name of their field",
        "portal/kit/security/logging_config.py",
        "if SECRET_FIELD.search(field) and",
        "if not field and",
        ("tests/portal/kit/security/test_checks.py",),
    ),
    Mutation(
        "audit: a digest covers the one before it",
        "portal/audit/chain.py",
        '"previous": previous}',
        '"previous": ""}',
        ("tests/portal/audit/test_chain.py",),
    ),
)


def occurrences(mutation: Mutation, root: Path = ROOT) -> int:
    """How often its old text is in its file."""
    file = root / mutation.file
    return file.read_text().count(mutation.old) if file.is_file() else 0


def is_pure(tests: Sequence[str]) -> bool:
    """They need no Django."""
    return all(test.startswith(PURE) for test in tests)


def run(mutation: Mutation, copy: Path) -> str:
    """Apply it, run its tests and take it back. Answers killed, survived, or why neither can be said."""
    file = copy / mutation.file
    original = file.read_text()
    try:
        _write(file, original.replace(mutation.old, mutation.new))
        done = _pytest(copy, mutation.tests)
    finally:
        _write(file, original)
    if done.returncode == TESTS_FAILED and any(each in done.stdout for each in SLOWNESS):
        return "ERROR: a test was too slow"
    return {0: "SURVIVED", TESTS_FAILED: "killed"}.get(done.returncode, f"ERROR: pytest ended with {done.returncode}")


def _write(file: Path, text: str) -> None:
    """Without the compiled file, which Python would trust when size and second are the same."""
    file.write_text(text)
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def _pytest(copy: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    pure = is_pure(tests)
    command = [*PYTEST, *(WITHOUT_PLUGINS if pure else ()), *tests]
    # With CI set, Hypothesis has no deadlines: a busy machine breaks no rule.
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "true"}
    environment = {**os.environ, **(alone if pure else {})}
    return subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False, env=environment)


def _copy_to(folder: Path) -> None:
    for file in tracked_files():
        target = folder / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)


def _run_all(numbers: Sequence[int]) -> bool:
    """Print one row per mutation, those with pure tests first; True when all were killed."""
    results: list[str] = []
    with tempfile.TemporaryDirectory(prefix="rung-mutations-") as folder:
        copy = Path(folder)
        _copy_to(copy)
        for pure in (True, False):
            chosen = [number for number in numbers if is_pure(MUTATIONS[number - 1].tests) is pure]
            results += _run_group(chosen, copy) if chosen else []
    killed = results.count("killed")
    sys.stdout.write(f"{killed} of {len(numbers)} killed.\n")
    return killed == len(numbers)


def _run_group(numbers: Sequence[int], copy: Path) -> list[str]:
    """The results of these. None where their tests fail without any mutation: a failure would prove nothing."""
    before = _pytest(copy, sorted({test for number in numbers for test in MUTATIONS[number - 1].tests}))
    if before.returncode:
        sys.stdout.write(f"{before.stdout}{before.stderr}\nThese tests fail without a mutation.\n")
        return []
    results = []
    for number in numbers:
        started = time.monotonic()
        results.append(run(MUTATIONS[number - 1], copy))
        seconds = time.monotonic() - started
        sys.stdout.write(f"{number:3} {results[-1]:9} {seconds:5.0f} s  {MUTATIONS[number - 1].rule}\n")
        sys.stdout.flush()
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations", description="Break rules: their tests must fail."
    )
    parser.add_argument("--only", type=int, nargs="+", metavar="N", choices=range(1, len(MUTATIONS) + 1))
    parser.add_argument("--list", action="store_true", help="show the mutations and run nothing")
    options = parser.parse_args(arguments)
    numbers = options.only or range(1, len(MUTATIONS) + 1)
    for number in numbers:
        mutation = MUTATIONS[number - 1]
        if (found := occurrences(mutation)) != 1:
            sys.stdout.write(f"{number}: the old text occurs {found} times in {mutation.file}, not once.\n")
            return 1
        if options.list:
            sys.stdout.write(f"{number:3} {mutation.rule} ({mutation.file})\n")
    return 0 if options.list or _run_all(numbers) else 1


if __name__ == "__main__":
    sys.exit(main())
