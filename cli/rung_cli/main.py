"""`rung` itself: its options, its commands, and what every ending says and returns."""

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from typer._completion_classes import completion_init
from typer.exceptions import TyperException
from typer.main import get_command

from rung_cli import __version__, completions
from rung_cli.commands import api as commands_api
from rung_cli.commands import (
    apply,
    catalogue,
    describe,
    evictions,
    inventory,
    login,
    logs,
    plan,
    quota,
    replay,
    reports,
    submit,
    wait,
    workload_actions,
)
from rung_cli.errors import MEANINGS, CliError, ExitCode, UsageError
from rung_cli.flags import Root
from rung_cli.output.errors import print_error
from rung_cli.output.stderr import note
from rung_cli.session import Options, Session, session

EPILOG: Final = "Exit codes: " + "; ".join(f"{code.value} {text}" for code, text in MEANINGS.items()) + "."

app = typer.Typer(
    cls=Root,
    name="rung",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (
    login,
    catalogue,
    inventory,
    submit,
    describe,
    logs,
    wait,
    workload_actions,
    quota,
    evictions,
    replay,
    plan,
    reports,
    apply,
    commands_api,
    completions,
):
    group.register(app)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - the library calls it so
    if wanted:
        sys.stdout.write(f"rung {__version__}\n")
        raise typer.Exit


@app.callback()
def rung(
    ctx: typer.Context,
    *,
    profile: Annotated[
        str, typer.Option(help="Configuration profile (RUNG_PROFILE).", autocompletion=completions.profile_names)
    ] = "",
    url: Annotated[str, typer.Option(help="Address of the portal; default: RUNG_URL, then the profile's.")] = "",
    ca_file: Annotated[str, typer.Option(help="Trusted certificate authorities in PEM (RUNG_CA_FILE).")] = "",
    insecure_http: Annotated[
        bool, typer.Option("--insecure-http", help="Allow http to another machine. Traffic can be intercepted.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Log every request to stderr, without secrets.")] = False,
    retries: Annotated[int, typer.Option(min=0, max=20, help="Retries when the server is busy or not reachable.")] = 4,
    request_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for a response.")] = 30.0,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version.")
    ] = False,
) -> None:
    """Submit, watch and explain GPU workloads.

    Sign in once with `rung login`, or set RUNG_URL, RUNG_CLIENT_ID and RUNG_CLIENT_SECRET.
    """
    del version  # its callback has printed it
    session(ctx).options = Options(profile, url, ca_file, insecure_http, debug, retries, request_timeout)


def run(args: Sequence[str] | None = None) -> int:
    """Run one command and answer its exit code; everything that goes wrong is said on stderr in one way."""
    held = Session()
    completion_init()
    try:
        code = get_command(app).main(args=args, prog_name="rung", standalone_mode=False, obj=held)
        return code if isinstance(code, int) else ExitCode.OK
    except SystemExit as ended:  # the library exits so after it printed completions
        return ended.code if isinstance(ended.code, int) else ExitCode.OK
    except CliError as error:
        print_error(error, held.format)
        return error.exit_code
    except TyperException as error:
        print_error(_usage_error(error), held.format)
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        note("Interrupted.")
        return ExitCode.INTERRUPTED
    except Exception as error:
        note(f"rung: internal error: {type(error).__name__}: {error}")
        if held.options.debug:
            note("".join(traceback.format_tb(error.__traceback__)))
        return ExitCode.INTERNAL
    finally:
        held.close()


def entry() -> None:
    """The console script."""
    sys.exit(run())


def _usage_error(error: TyperException) -> UsageError:
    """What the parser says, with the way to help."""
    context = getattr(error, "ctx", None)
    hint = f"{context.command_path} --help" if context else "rung --help"
    return UsageError(error.format_message(), hint=hint)
