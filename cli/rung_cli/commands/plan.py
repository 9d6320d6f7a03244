"""`plan`: changes that were planned but not made yet; what each would do; approve, apply, discard or undo it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from rung_cli.errors import ApiError
from rung_cli.flags import OutputFlag, Yes
from rung_cli.http.client import rows
from rung_cli.output.formats import Columns, Output, TableColumn
from rung_cli.output.stderr import confirm
from rung_cli.output.units import age, gpus
from rung_cli.session import Session, session

PATH: Final = "v1/plans"
STYLES: Final = {"applied": "green", "open": "yellow"}
MARKS: Final = {"+": "green", "~": "yellow", "±": "yellow", "-": "red", "…": "red"}


class PlanStateName(StrEnum):
    """What `--state` takes."""

    OPEN = "open"
    NEEDS_APPROVAL = "needs-approval"
    EXPIRED = "expired"
    APPLIED = "applied"
    DISCARDED = "discarded"


def _state(plan: Mapping[str, Any]) -> str:
    """Its state, and whether it waits for an approval."""
    return "needs approval" if plan["needsApproval"] else str(plan["state"])


PLANS: Final[Columns] = (
    TableColumn("ID", lambda row: row["id"]),
    TableColumn("TITLE", lambda row: row["title"]),
    TableColumn("STATE", _state, style=lambda row: STYLES.get(row["state"], "dim")),
    TableColumn("KIND", lambda row: row["kind"], wide=110),
    TableColumn("BY", lambda row: row["createdBy"]),
    TableColumn("AGE", lambda row: age(row["createdAt"]), right=True),
    TableColumn("CHANGE", lambda row: row["sentence"], wide=160),
)
APPROVALS: Final[Columns] = (
    TableColumn("SCOPE", lambda row: row["departmentName"] or "all plans"),
    TableColumn("BY", lambda row: row["createdBy"]),
    TableColumn("AGE", lambda row: age(row["createdAt"]), right=True),
)
PlanId = Annotated[str, typer.Argument(metavar="PLAN", help="Id of the plan.")]


def register(app: typer.Typer) -> None:
    """Add them."""
    group = typer.Typer(rich_markup_mode=None)
    group.callback(invoke_without_command=True)(plans)
    group.command("list")(list_plans)
    for each in (show, approve, apply, discard, rollback, approval):
        group.command()(each)
    app.add_typer(group, name="plan")


def plans(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """Show, approve, apply, discard and roll back change plans. Without a subcommand, list those that you may apply.

    rung plan list --state open
    """
    if not ctx.invoked_subcommand:
        list_plans(ctx, output=output)


def list_plans(
    ctx: typer.Context,
    *,
    state: Annotated[PlanStateName | None, typer.Option(help="Only plans in this state.")] = None,
    output: OutputFlag = None,
) -> None:
    """List the change plans that you may apply, newest first.

    rung plan list --state open
    """
    held = session(ctx)
    out = held.output(output)
    found = rows(held.api, PATH, "plans", query={"state": state.value} if state else {})
    out.rows(found, PLANS, name=lambda row: str(row["id"]), empty="No plans.")


def show(ctx: typer.Context, plan: PlanId, *, output: OutputFlag = None) -> None:
    """Show what a plan would do: objects per cluster, workloads, sums of quotas, warnings.

    rung plan show 6f1b3d2e-8c1f-4d5e-9a57-0f4f3c2b1a00
    """
    held = session(ctx)
    print_plan(held.output(output), held.api.get(f"{PATH}/{plan}"))


def _confirm(held: Session, plan: str, verb: str) -> None:
    """Show a plan and ask whether to go on; ends the command after a no."""
    found = held.api.get(f"{PATH}/{plan}")
    confirm(
        [found["title"], found["sentence"], *found["warnings"]],
        f"{verb.capitalize()} this plan?",
        hint=f"Use --yes to {verb} in scripts.",
        declined="Nothing was changed.",
    )


def apply(ctx: typer.Context, plan: PlanId, *, yes: Yes = False, output: OutputFlag = None) -> None:
    """Apply a plan. Refused if it expired or if the configuration it was computed on changed.

    rung plan apply 6f1b3d2e-8c1f-4d5e-9a57-0f4f3c2b1a00 --yes
    """
    held = session(ctx)
    out = held.output(output)
    if not yes:
        _confirm(held, plan, "apply")
    done = held.api.post(f"{PATH}/{plan}/apply", {})
    follows = " Clusters are being updated." if done["objects"] else ""
    out.one(done, name=done["id"], human=lambda: out.line(f"Applied: {done['title']}.{follows}"))


def approve(ctx: typer.Context, plan: PlanId, *, yes: Yes = False, output: OutputFlag = None) -> None:
    """Approve a plan of another admin, where a second admin has to. It can be applied then.

    rung plan approve 6f1b3d2e-8c1f-4d5e-9a57-0f4f3c2b1a00 --yes
    """
    held = session(ctx)
    out = held.output(output)
    if not yes:
        _confirm(held, plan, "approve")
    done = held.api.post(f"{PATH}/{plan}/approve", {})
    out.one(done, name=done["id"], human=lambda: out.line(f"Approved: {done['title']}. It can be applied now."))


def approval(
    ctx: typer.Context,
    *,
    department: Annotated[str, typer.Option(help="Name of the department; without it: of all plans.")] = "",
    cluster: Annotated[str, typer.Option(help="Where departments of several clusters share a name.")] = "",
    require: Annotated[
        bool | None, typer.Option("--require/--no-require", help="Create the plan that requires it, or stops it.")
    ] = None,
    output: OutputFlag = None,
) -> None:
    """List where a second admin has to approve plans; or create the plan that changes it.

    rung plan approval --department research --require
    """
    held = session(ctx)
    out = held.output(output)
    if require is None:
        found = held.api.get("v1/plan-approvals")["approvals"]
        out.rows(found, APPROVALS, name=lambda row: str(row["departmentName"] or "all"), empty="Not required.")
        return
    change = {"department": department, "cluster": cluster, "required": require}
    body = {"kind": "approval", "change": {name: value for name, value in change.items() if value != ""}}
    print_plan(out, held.api.post(PATH, body))


def discard(ctx: typer.Context, plan: PlanId, *, output: OutputFlag = None) -> None:
    """Discard a plan without changing anything.

    rung plan discard 6f1b3d2e-8c1f-4d5e-9a57-0f4f3c2b1a00
    """
    held = session(ctx)
    out = held.output(output)
    done = held.api.post(f"{PATH}/{plan}/discard", {})
    out.one(done, name=done["id"], human=lambda: out.line(f"Discarded: {done['title']}. Nothing was changed."))


def rollback(ctx: typer.Context, plan: PlanId, *, output: OutputFlag = None) -> None:
    """Create the plan that undoes an applied one, and show it. Apply that plan to roll back.

    rung plan apply $(rung plan rollback 6f1b3d2e-8c1f-4d5e-9a57-0f4f3c2b1a00 -o name)
    """
    held = session(ctx)
    print_plan(held.output(output), held.api.post(f"{PATH}/{plan}/rollback", {}))


@contextmanager
def naming_plan_option() -> Iterator[None]:
    """Report a change that a second admin has to approve with the option that creates its plan."""
    try:
        yield
    except ApiError as refusal:
        if refusal.answer.get("details") == "approval_required":
            refusal.hint = "To create its plan, add --plan."
        raise


def print_plan(out: Output, plan: Mapping[str, Any]) -> None:
    """A plan with all that it says."""
    out.one(plan, name=plan["id"], human=lambda: _human(out, plan))


def _human(out: Output, plan: Mapping[str, Any]) -> None:
    approved = f", approved by {plan['approvedBy']}" if plan["approvedAt"] else ""
    out.line(plan["sentence"])
    out.pairs(
        [
            ("Plan", f"{plan['title']} ({plan['id']})"),
            ("State", f"{_state(plan)}{approved}"),
            ("Created", f"{age(plan['createdAt'])} ago by {plan['createdBy']}"),
            ("Reason", plan.get("reason")),
            ("Applied", f"{age(plan['appliedAt'])} ago by {plan['appliedBy']}" if plan["appliedAt"] else ""),
            ("GPU-hours at risk", plan["gpuHoursAtRisk"]),
        ]
    )
    if plan.get("outOfDate"):
        out.line(f"Out of date, cannot be applied: {plan['outOfDate']}", style="red")
    for sync in plan.get("syncs", ()):
        out.line(_sync_line(sync), style="green" if sync["state"] == "synced" else "yellow")
    if plan["appliedAt"]:
        out.line(f"The effect was computed {age(plan['createdAt'])} ago, before the plan was applied:")
    for line, style in plan_lines(plan):
        out.line(line, style=style)


_SYNCS: Final = {
    "synced": "synced {finishedAt}, run {run}",
    "running": "not synced since, run {run} is active",
    "failed": "not synced since, run {run} failed, next try {nextAt}",
    "waiting": "not synced since, next try {nextAt}",
    "paused": "not synced since, the cluster is paused",
    "gone": "no longer connected",
}


def _sync_line(sync: Mapping[str, Any]) -> str:
    """Whether a cluster was synced after the plan was applied."""
    return f"{sync['cluster']}: {_SYNCS.get(sync['state'], sync['state']).format(**sync)}"


def plan_lines(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a plan says after its sentence, line by line, each with its style."""
    yield from ((f"{name}: {before} -> {after}", "") for name, before, after in plan["settings"])
    yield from ((_sum_line(each), "") for each in plan["sums"])
    for cluster in plan["objects"]:
        for change in cluster["changes"]:
            line = f"{change['mark']} {cluster['cluster']}: {change['kind']} {change['name']}"
            line += " (deleted later)" if change["mark"] == "…" else ""
            yield line, MARKS.get(change["mark"], "")
    for name, group in plan["workloads"].items():
        for each in group["examples"]:
            yield f"{name.replace('_', ' ')}: {each['project']}/{each['name']}, {each['priority']} {each['value']}", ""
        if more := group["examples"] and group.get("more"):
            yield f"{name.replace('_', ' ')}: and {more} more", ""
    yield from ((line, "") for line in _start_lines(plan.get("starts")))
    for scope in plan["victims"].get("scopes", ()):
        yield from ((line, "") for line in _eviction_lines(scope))
    yield from (_reclaim_line(each) for each in plan.get("reclaims", ()))
    yield from ((f"Warning: {warning}", "yellow") for warning in plan["warnings"])


def _start_lines(starts: Mapping[str, Any] | None) -> Iterator[str]:
    """Which waiting workloads could start with planned quotas, and how many were tried."""
    if starts and not starts["estimated"] and not starts["tried"]:
        yield "No estimate of what could start."
    elif starts and starts["tried"]:
        found = [
            f"{each['project']}/{each['name']} ({gpus(each['gpus'])}{', evicting others' if each['evicts'] else ''})"
            for each in starts["workloads"]
        ]
        left = "; others that wait were not tried" if starts["more"] else ""
        yield f"Could start, each by itself, of {starts['tried']} waiting: {', '.join(found) or 'none'}{left}."


def _eviction_lines(scope: Mapping[str, Any]) -> Iterator[str]:
    """On the clusters where evictions are alike: how far they go, and which pairs of priorities change."""
    where = ", ".join(f"{each['name']} ({each['scheduler']})" for each in scope["clusters"])
    notes = filter(None, (scope["foreign"], scope.get("assumption")))
    before = scope.get("reach_before", scope["reach"])
    reach = scope["reach"] if before == scope["reach"] else f"{before} -> {scope['reach']}"
    yield " ".join((f"Evictions on {where}: {reach}.", *notes))
    yield from (f"  {sentence}" for sentence in scope.get("elsewhere", ()))
    for verb, words in (("new", "can now"), ("lost", "can no longer")):
        yield from (f"  {who} {words} evict {whom}" for who, whom in scope[verb])
    changed = list(_changed_lines(scope))
    yield from changed
    if before == scope["reach"] and not (scope["new"] or scope["lost"] or changed or scope.get("elsewhere")):
        yield "  no pair of priorities changes"


def _changed_lines(scope: Mapping[str, Any]) -> Iterator[str]:
    """Pairs of priorities that evict other workloads than before, a line for each of those that evict."""
    for row in scope["matrix"]:
        for kind, words in (("all", "non-preemptible workloads, too, of"), ("preemptible", "only preemptible ones of")):
            whom = [each["whom"] for each in row["cells"] if (each["mark"], each["evicts"]) == ("~", kind)]
            if whom:
                yield f"  {row['who']} can now evict {words} {', '.join(whom)}"


def _reclaim_line(each: Mapping[str, Any]) -> tuple[str, str]:
    change = f"{each['before']:g} -> {each['after']:g} GPUs"
    who = f"{each['taker']} can reclaim from {each['giver']} in {each['pool']} of {each['cluster']}"
    return f"{each['mark']} {who}: {change}", MARKS[each["mark"]]


def _sum_line(each: Mapping[str, Any]) -> str:
    most = "unknown" if each["most"] is None else f"{each['most']:g}"
    change = f"{each['before']:g} -> {each['after']:g} GPUs deserved"
    return f"{each['of']} in {each['pool']} of {each['cluster']}: {change}; {each['bound']} {most}"
