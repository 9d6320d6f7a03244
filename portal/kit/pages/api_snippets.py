"""Write the request of a form as text to copy: curl, `rung`, Python and YAML.

User input is data in them: inside JSON, a quoted here-document or a quoted word of the shell. Who
asks is never written: `$RUNG_TOKEN` for curl, an access key in the environment for Python. Nor is any other secret:
each text takes it from the environment.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pprint import pformat
from typing import Any, Final

import yaml
from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One call of the REST API.

    `method` is its name in Run:ai's client, from the client's root, if it has one; `arguments` stand before its body.
    `rung`: the words of the command that does the same, if there is one of its own. `secrets`: members that the body
    lacks, by JSON pointer, each with the variable of the environment that holds it.
    """

    verb: str
    path: str
    body: Body | None = None
    method: str = ""
    arguments: tuple[str, ...] = ()
    rung: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApiSnippet:
    """One tab: its name and its text."""

    name: str
    title: str
    text: str


def snippets_for(
    address: str, requests: Sequence[ApiRequest], *, document: str = "", command: str = "", note: str = ""
) -> list[ApiSnippet]:
    """The four tabs; one without a text is left out.

    `document`: YAML, else the bodies; `command`: of `rung`, else the calls by `rung api`; `note`: comment lines that
    curl and Python begin with.
    """
    curl = "\n\n".join(curl_text(address, each) for each in requests)
    python = python_text(address, requests) if requests else ""
    bodies = [each.body for each in requests if each.body is not None]
    texts = {
        "yaml": ("YAML", document or (yaml_text(bodies) if bodies else "")),
        "curl": ("curl", curl and note + curl),
        "rung": ("rung", command or "\n\n".join(map(_rung_command, requests))),
        "python": ("Python", python and note + python),
    }
    return [ApiSnippet(name, title, text) for name, (title, text) in texts.items() if text]


def curl_text(address: str, request: ApiRequest) -> str:
    """A command that fails when the answer is a refusal, and shows it."""
    words = ["curl", "--fail-with-body", "--silent", "--show-error", "--request", request.verb]
    head = " ".join(shlex.quote(word) for word in [*words, f"{address}{request.path}"])
    lines = [head, _BEARER]
    if request.body is None:
        return " \\\n  ".join(lines)
    lines += ["--header 'Content-Type: application/json'", "--data-binary @-"]
    command, body = " \\\n  ".join(lines), json.dumps(request.body, indent=2, ensure_ascii=False)
    if not request.secrets:
        return f"{command} {here_document(body, 'JSON')}"
    added = " | ".join(f".{pointer[1:].replace('/', '.')} = env.{name}" for pointer, name in request.secrets.items())
    return f"{_secret_prompt(request)}{command} < <(jq '{added}' {here_document(body, 'JSON')}\n)"


def _secret_prompt(request: ApiRequest) -> str:
    return "".join(
        f"# ${name}: {pointer[1:]}, which is not written here.\n" for pointer, name in request.secrets.items()
    )


_BEARER: Final = """--header @<(printf %s "Authorization: Bearer $RUNG_TOKEN")"""
"""Read from a pipe of the shell: every user of the machine can read a command's arguments."""


def here_document(text: str, word: str) -> str:
    """A here-document; its delimiter does not occur as a line of the text."""
    while word in text.splitlines():
        word += "_"
    body = text if text.endswith("\n") else f"{text}\n"
    return f"<<'{word}'\n{body}{word}"


def rung_text(words: Sequence[str], document: str = "") -> str:
    """A command of `rung`, with what it reads from its input."""
    command = shlex.join(["rung", *words])
    return f"{command} {here_document(document, 'YAML')}" if document else command


def _rung_command(request: ApiRequest) -> str:
    if request.rung:
        return rung_text(request.rung)
    words = ["api", request.verb, request.path.removeprefix("/api/")]
    if request.body is None:
        return rung_text(words)
    words += [word for pointer, name in request.secrets.items() for word in ("--from-env", f"{pointer}={name}")]
    return rung_text([*words, "-f", "-"], yaml_text([request.body]))


def python_text(address: str, requests: Sequence[ApiRequest]) -> str:
    """A whole script; what Run:ai's client has no method for goes by its way of asking anything."""
    calls = "\n".join(_call(each) for each in requests)
    return f"{_SIGNED_IN.format(address=address)}{calls}\n"


def _call(request: ApiRequest) -> str:
    body = None if request.body is None else pformat(dict(request.body), sort_dicts=False, width=100)
    before = ""
    if request.secrets:
        before, body = f"{_secret_prompt(request)}body = {body}\n{_added(request)}", "body"
    if request.method:
        arguments = [*map(repr, request.arguments), *([body] if body else [])]
        return f"{before}answer = client.{request.method}({', '.join(arguments)})\nprint(answer.data)"
    more = f", body={body}" if body else ""
    requested = f"method={request.verb!r}, resource_path={request.path!r}{more}"
    return f"{before}answer = client.api_client.call_api({requested})\nprint(answer.data)"


def _added(request: ApiRequest) -> str:
    places = {pointer: "".join(f"[{part!r}]" for part in pointer[1:].split("/")) for pointer in request.secrets}
    return "".join(f"body{place} = os.environ[{request.secrets[at]!r}]\n" for at, place in places.items())


_SIGNED_IN: Final = """import os

from runai.api_client import ApiClient
from runai.configuration import Configuration
from runai.runai_client import RunaiClient

settings = Configuration(
    client_id=os.environ["RUNG_CLIENT_ID"],
    client_secret=os.environ["RUNG_CLIENT_SECRET"],
    runai_base_url={address!r},
)
client = RunaiClient(ApiClient(settings))

"""


def yaml_text(documents: Sequence[Body]) -> str:
    """Plain YAML, document after document, in the order of writing."""
    return "---\n".join(yaml.safe_dump(dict(each), sort_keys=False, allow_unicode=True) for each in documents)


TARGETS: Final = {"copies": "", "act-copies": "act-"}
"""Where the page puts them, and the prefix of their ids, which distinguishes such a request from the form's."""


def portal_address(request: HttpRequest) -> str:
    """Where this portal is, as its reader reached it."""
    return request.build_absolute_uri("/").rstrip("/")


def form_snippets(request: HttpRequest, form: BaseForm, call: Callable[[], ApiRequest]) -> HttpResponse | None:
    """The texts for what the form holds; None where they are not asked for. Ask before anything is done.

    `call`: the form's act as a call of the REST API; asked only of a form that is complete.
    """
    if not wants_snippets(request):
        return None
    return _render_snippets(request, [call()] if form.is_valid() else [], form=form)


def action_snippet(request: HttpRequest, call: ApiRequest | None, *, lacking: str = "") -> HttpResponse | None:
    """The texts for a button that does one thing; None where they are not asked for. Ask before anything is done.

    `lacking`: what to do first, where there is no call yet.
    """
    return _render_snippets(request, [call] if call else [], lacking=lacking) if wants_snippets(request) else None


def action_snippets(request: HttpRequest, calls: Sequence[ApiRequest]) -> HttpResponse:
    """The texts for a button that does several things, once it is known that they are asked for."""
    return _render_snippets(request, calls)


def wants_snippets(request: HttpRequest) -> bool:
    """Is it the page that asks what its form would do?"""
    return request.method == "POST" and request.headers.get("HX-Target") in TARGETS


def _render_snippets(request: HttpRequest, calls: Sequence[ApiRequest], **more: BaseForm | str) -> HttpResponse:
    shown = snippets_for(portal_address(request), calls) if calls else []
    context = {"recipes": shown, "place": TARGETS[request.headers["HX-Target"]], **more}
    return render(request, "components/copied.html", context)
