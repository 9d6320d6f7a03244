"""`login`, `logout`, `whoami`, `profiles`."""

import getpass
import os
import sys
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from rung_cli import completions
from rung_cli.config import credential_store, profiles
from rung_cli.config.credential_store import Credentials
from rung_cli.errors import UsageError
from rung_cli.flags import WAYS, OutputFlag
from rung_cli.http.addresses import origin_of
from rung_cli.http.client import exchange
from rung_cli.output.formats import Columns, TableColumn
from rung_cli.output.stderr import note
from rung_cli.session import Session, session

LENIENT = {"allow_extra_args": True, "ignore_unknown_options": True}
LONGEST = 4096
PROFILES: Columns = (
    TableColumn("PROFILE", lambda row: row["name"]),
    TableColumn("DEFAULT", lambda row: "yes" if row["default"] else ""),
    TableColumn("PORTAL", lambda row: row["url"]),
    TableColumn("CLIENT ID", lambda row: row["client_id"]),
    TableColumn("PROJECT", lambda row: row["project"]),
    TableColumn("SIGNED IN", lambda row: "yes" if row["signedIn"] else "no"),
)


def register(app: typer.Typer) -> None:
    """Add them."""
    app.command(context_settings=LENIENT)(login)
    app.command()(logout)
    app.command()(whoami)
    group = typer.Typer(rich_markup_mode=None)
    group.callback(invoke_without_command=True)(list_profiles)
    group.command("list")(show_profiles)
    group.command("use")(use_profile)
    app.add_typer(group, name="profiles")


def login(
    ctx: typer.Context,
    *,
    address: Annotated[str, typer.Argument(help="Address of the portal, such as https://rung.example.org.")] = "",
    client_id: Annotated[
        str, typer.Option(help="Client id of your access key or service account (RUNG_CLIENT_ID).")
    ] = "",
    secret_stdin: Annotated[bool, typer.Option("--secret-stdin", help="Read the secret from stdin.")] = False,
    project: Annotated[
        str, typer.Option("--project", "-p", help="Default project.", autocompletion=completions.project_names)
    ] = "",
    token_only: Annotated[
        bool, typer.Option("--token-only", help="Store only the token, which expires within a day, and not the secret.")
    ] = False,
) -> None:
    """Sign in and store the credentials in this profile.

    Enter the secret when prompted, pipe it, or set RUNG_CLIENT_SECRET. It is never an argument.
    Credentials are stored in your keyring if rung was installed with one, else in a file that only you can read.

    rung login https://rung.example.org --project llm-team

    pass show rung | rung login --profile staging --client-id me --secret-stdin
    """
    if ctx.args:
        raise UsageError("rung login takes only an address. Secrets are never passed as arguments.", hint=WAYS)
    held = session(ctx)
    before = held.profile_to_be
    wire = held.wire_to(address or held.options.url or os.environ.get("RUNG_URL") or before.url)
    known_as = client_id or os.environ.get("RUNG_CLIENT_ID") or before.client_id or _prompt("Client id: ")
    secret = _secret(from_stdin=secret_stdin)
    token, expires = exchange(wire, known_as, secret)
    credentials = Credentials(origin_of(wire.address), known_as, "" if token_only else secret, token, expires)
    credential_store.save(held.profile_name, credentials)
    _remember(held, wire.address, known_as, project)
    note(f"Signed in to {wire.address} as {known_as} (profile {held.profile_name}).")


def logout(ctx: typer.Context) -> None:
    """Delete the token and the secret of this profile.

    rung logout --profile staging
    """
    held = session(ctx)
    known = credential_store.forget(held.profile_name)
    note(f"Signed out of the profile {held.profile_name}." if known else "You were not signed in.")


def whoami(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """Show the current user and its roles.

    rung whoami -o json
    """
    held = session(ctx)
    out = held.output(output)
    found = held.api.get("v1/whoami")
    roles = [f"{each['role']} in {_scope(each)}" for each in found["roles"]]
    pairs = [
        ("Name", found["name"]),
        ("Kind", found["kind"]),
        ("Portal", held.wire.address),
        ("Profile", held.profile_name),
        ("Roles", "\n".join(roles) or "none"),
        ("This key", _narrowed(found.get("narrowed") or {})),
    ]
    out.one(found, name=str(found["name"]), human=lambda: out.pairs(pairs))


def list_profiles(ctx: typer.Context) -> None:
    """List the profiles of this machine; subcommand use changes the default.

    rung profiles use staging
    """
    if not ctx.invoked_subcommand:
        show_profiles(ctx)


def show_profiles(ctx: typer.Context, *, output: OutputFlag = None) -> None:
    """List profiles, and which one is the default. Nothing is asked of a portal.

    rung profiles list -o name
    """
    out = session(ctx).output(output)
    config, signed_in = profiles.load(), credential_store.origins()
    found = [
        {"name": name, "default": name == config.default_profile, "signedIn": name in signed_in, **asdict(each)}
        for name, each in config.profiles.items()
    ]
    out.rows(found, PROFILES, name=lambda row: str(row["name"]), empty="No profiles. Make one with: rung login")


def use_profile(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the profile.", autocompletion=completions.profile_names)],
) -> None:
    """Make a profile the default.

    rung profiles use staging
    """
    del ctx
    profiles.use(name)
    note(f"The default profile is now {name}.")


def _scope(role: dict[str, Any]) -> str:
    name = f" {role['scopeName']}" if role.get("scopeName") else ""
    return "the whole installation" if role["scopeType"] == "system" else f"{role['scopeType']}{name}"


def _narrowed(found: dict[str, Any]) -> str:
    """What the access key leaves of the roles."""
    parts = ["read-only"] if found.get("readOnly") else []
    parts += [f"only project {found['projectId']}"] if found.get("projectId") else []
    parts += [f"only department {found['departmentId']}"] if found.get("departmentId") else []
    return ", ".join(parts)


def _remember(held: Session, address: str, client_id: str, project: str) -> None:
    options, before = held.options, held.profile_to_be
    ca_file = options.ca_file or os.environ.get("RUNG_CA_FILE") or before.ca_file
    profile = replace(
        before,
        url=address,
        client_id=client_id,
        project=project or before.project,
        ca_file=ca_file,
        insecure_http=options.insecure_http or before.insecure_http,
    )
    profiles.save(held.profile_name, profile)


def _prompt(question: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError("No client id. Set --client-id or RUNG_CLIENT_ID.")
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def _secret(*, from_stdin: bool) -> str:
    if from_stdin:
        found = sys.stdin.read(LONGEST).strip()
    elif from_environment := os.environ.get("RUNG_CLIENT_SECRET"):
        found = from_environment
    elif sys.stdin.isatty():
        found = getpass.getpass("Secret (not shown): ", stream=sys.stderr).strip()
    else:
        raise UsageError("Cannot prompt for the secret: not a terminal.", hint=WAYS)
    if not found:
        raise UsageError("The secret is empty.", hint=WAYS)
    return found
