"""`api`: any route of the portal, for what has no command of its own."""

import json
import os
from collections.abc import Sequence
from datetime import date
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml

from rung_cli.errors import UsageError
from rung_cli.flags import OutputFlag
from rung_cli.http.client import Api
from rung_cli.manifests.documents import read_documents
from rung_cli.output.formats import Format
from rung_cli.session import session


class Method(StrEnum):
    """What a route is asked with."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


def register(app: typer.Typer) -> None:
    """Add it."""
    app.command()(api)


def api(
    ctx: typer.Context,
    method: Annotated[Method, typer.Argument(help="GET, POST, PUT, PATCH or DELETE.", case_sensitive=False)],
    path: Annotated[str, typer.Argument(help="Path below /api/, with query, such as v1/clusters.")],
    *,
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="Body in YAML or JSON; - is stdin.")] = "",
    from_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POINTER=NAME",
            help="Set a member of the body from an environment variable, such as /token=TOKEN. Keeps secrets out "
            "of files.",
        ),
    ] = None,
    output: OutputFlag = None,
) -> None:
    """Call any REST route and print the response, as JSON or YAML.

    rung api GET 'v1/workloads?limit=5'

    rung api POST v1/clusters -f cluster.yaml --from-env /token=TOKEN
    """
    held = session(ctx)
    out = held.output(output)
    if out.format is Format.NAME:
        raise UsageError("-o name is not supported here. Use -o json or -o yaml.")
    answer = _request(held.api, method, path.lstrip("/").removeprefix("api/"), _filled(_body(file), from_env or []))
    if answer is not None:
        out.data(answer)


def _request(asking: Api, method: Method, path: str, body: Any) -> Any:
    match method:
        case Method.GET | Method.DELETE if body is not None:
            raise UsageError(f"{method} takes no body.")
        case Method.GET:
            return asking.get(path)
        case Method.DELETE:
            return asking.delete(path)
        case Method.POST:
            return asking.post(path, body)
        case Method.PUT:
            return asking.put(path, body)
        case Method.PATCH:
            return asking.patch(path, body)


def _body(file: str) -> Any:
    """The content of the file: one document."""
    if not file:
        return None
    found = read_documents([file])
    if len(found) != 1:
        raise UsageError(f"The body must be one document, not {len(found)}.")
    try:
        return json.loads(json.dumps(yaml.safe_load(found[0].text), default=_as_text, allow_nan=False))
    except yaml.YAMLError as error:
        raise UsageError(f"{found[0]}: not valid YAML: {error}") from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{found[0]}: cannot be converted to JSON: {error}") from None


def _filled(body: Any, members: Sequence[str]) -> Any:
    """The body with members from the environment."""
    for each in members:
        pointer, found, name = each.partition("=")
        *above, last = pointer.removeprefix("/").split("/")
        place = body
        for part in above:
            place = place.get(part) if isinstance(place, dict) else None
        if not (found and last and pointer.startswith("/") and isinstance(place, dict)):
            raise UsageError(
                f"--from-env {pointer} is not a place in the body. Use /token=NAME or /config/password=NAME."
            )
        if name not in os.environ:
            raise UsageError(f"--from-env {each}: the environment variable {name} is not set.")
        place[last] = os.environ[name]
    return body


def _as_text(value: object) -> str:
    """YAML has dates, JSON has none."""
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not supported in JSON")
