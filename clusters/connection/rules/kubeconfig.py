"""An uploaded kubeconfig: read strictly, rebuilt from an allowlist, never handed to a Kubernetes client. Pure.

Taken: server, certificate-authority-data, tls-server-name; token, or client-certificate-data with client-key-data.
Everything else is refused by name at its place: nothing is run, opened or asked because a file says so.
"""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from clusters.connection.rules.connection_form_data import ConnectionFormData, connection_from
from clusters.ports.connection import Connection
from portal.kit.errors import BadRequest, PayloadTooLarge, Problem, RungError, ValidationFailed
from portal.kit.security.strict_json import DocumentInvalid, ParseLimits, token, visible
from portal.kit.security.strict_yaml import documents_from_yaml

LIMITS: Final = ParseLimits(size=8 * 1024 * 1024, depth=12, nodes=2_000, documents=1)
MINIFY: Final = "use the output of `kubectl config view --minify --flatten --raw`"
MOST_PROBLEMS: Final = 50
NO_PATHS: Final = f"File references are not supported. Include the data ({MINIFY})."
NO_AMBIENT: Final = "Impersonation is not supported. Remove it."

CLUSTER: Final = ("server", "certificate-authority-data", "tls-server-name", "insecure-skip-tls-verify")
USER: Final = ("token", "client-certificate-data", "client-key-data")
CONTEXT: Final = ("cluster", "user", "namespace")
TOP: Final = ("apiVersion", "kind", "clusters", "users", "contexts", "current-context", "preferences")
REASONS: Final[Mapping[str, str]] = {
    "certificate-authority": NO_PATHS,
    "client-certificate": NO_PATHS,
    "client-key": NO_PATHS,
    "tokenFile": NO_PATHS,
    "exec": "Credential programs are not supported. Use a token of a ServiceAccount for Rung.",
    "auth-provider": "Credential providers are not supported. Use a token of a ServiceAccount for Rung.",
    "username": "Passwords are not supported. Use a token.",
    "password": "Passwords are not supported. Use a token.",
    "proxy-url": "Proxies are not supported. Rung must reach the API server directly.",
    "as": NO_AMBIENT,
    "as-uid": NO_AMBIENT,
    "as-groups": NO_AMBIENT,
    "as-user-extra": NO_AMBIENT,
}
ERRORS: Final[Mapping[int, type[RungError]]] = {400: BadRequest, 413: PayloadTooLarge, 422: ValidationFailed}


def read_kubeconfig(data: bytes, *, now: datetime, allow_insecure: bool = False) -> Connection:
    """The one connection a kubeconfig describes. Raises Refused, TooLarge or BadRequest with every problem's place."""
    try:
        found = documents_from_yaml(data, LIMITS)
    except DocumentInvalid as refusal:
        raise _as_rung_error(refusal) from None
    reading = _KubeconfigReader()
    entered = reading.whole(found[0].value if found else None)
    reading.settle()
    return connection_from(entered, now=now, places=PLACES, allow_insecure=allow_insecure)


_CLUSTER: Final = "/clusters/0/cluster"
_USER: Final = "/users/0/user"
PLACES: Final[Mapping[str, str]] = {
    "server": f"{_CLUSTER}/server",
    "ca": f"{_CLUSTER}/certificate-authority-data",
    "tls_server_name": f"{_CLUSTER}/tls-server-name",
    "insecure": f"{_CLUSTER}/insecure-skip-tls-verify",
    "token": f"{_USER}/token",
    "certificate": f"{_USER}/client-certificate-data",
    "key": f"{_USER}/client-key-data",
    "credential": _USER,
}


class _KubeconfigReader:
    """Walks the document once and notes every problem."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def settle(self) -> None:
        if self._problems:
            first = self._problems[0]
            raise ValidationFailed(first.message, code=first.code, problems=self._problems[:MOST_PROBLEMS])

    def whole(self, value: Any) -> ConnectionFormData:
        """The parts, as far as they could be read."""
        top = self._object(value, "", TOP)
        if top.get("apiVersion") != "v1" or top.get("kind") != "Config":
            self._note("", "not_a_kubeconfig", "A kubeconfig must start with apiVersion: v1 and kind: Config.")
        if top.get("preferences"):
            self._note("/preferences", "not_taken", "Preferences are not supported. Remove them.")
        context = self._one(top, "contexts", "context", CONTEXT)
        cluster = self._one(top, "clusters", "cluster", CLUSTER)
        user = self._one(top, "users", "user", USER)
        self._current(top, context)
        return ConnectionFormData(
            server=self._text(cluster, "server", _CLUSTER),
            ca=self._data(cluster, "certificate-authority-data", _CLUSTER),
            tls_server_name=self._text(cluster, "tls-server-name", _CLUSTER),
            insecure=self._flag(cluster, "insecure-skip-tls-verify", _CLUSTER),
            token=self._text(user, "token", _USER),
            certificate=self._data(user, "client-certificate-data", _USER),
            key=self._data(user, "client-key-data", _USER),
        )

    def _note(self, pointer: str, code: str, message: str) -> None:
        self._problems.append(Problem(pointer, code, message))

    def _object(self, value: Any, pointer: str, known: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self._note(pointer, "wrong_type", "Expected an object.")
            return {}
        for key in value:
            if key not in known:
                why = REASONS.get(key, "Remove it.")
                self._note(f"{pointer}/{token(key)}", "not_taken", f"{visible(key, 40)} is not supported. {why}")
        return value

    def _one(self, top: Mapping[str, Any], plural: str, name: str, known: tuple[str, ...]) -> Mapping[str, Any]:
        """The content of a list's only entry. All entries are looked at, so that nothing hides behind the first."""
        entries = top.get(plural)
        if not isinstance(entries, list) or len(entries) != 1:
            many = len(entries) if isinstance(entries, list) else 0
            self._note(f"/{plural}", "one_needed", f"The file must have exactly one of {plural}, not {many}: {MINIFY}.")
        contents: list[Mapping[str, Any]] = [{}]
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            place = f"/{plural}/{index}"
            named = self._object(entry, place, ("name", name))
            contents.append(self._object(named.get(name, {}), f"{place}/{name}", known))
        return contents[1] if len(contents) > 1 else contents[0]

    def _current(self, top: Mapping[str, Any], context: Mapping[str, Any]) -> None:
        """The names must lead from the current context to the one cluster and the one user."""
        ways = (
            ("/current-context", top.get("current-context"), top.get("contexts")),
            ("/contexts/0/context/cluster", context.get("cluster"), top.get("clusters")),
            ("/contexts/0/context/user", context.get("user"), top.get("users")),
        )
        for pointer, wanted, entries in ways:
            names = (
                [each.get("name") for each in entries if isinstance(each, Mapping)] if isinstance(entries, list) else []
            )
            if not wanted:
                self._note(pointer, "required", f"Missing: {MINIFY}.")
            elif wanted not in names:
                self._note(pointer, "unknown", f"Not found in this file: {MINIFY}.")

    def _text(self, content: Mapping[str, Any], key: str, pointer: str) -> str:
        value = content.get(key)
        if value is not None and not isinstance(value, str):
            self._note(f"{pointer}/{key}", "wrong_type", "Expected a text. Write it in quotes.")
        return value if isinstance(value, str) else ""

    def _flag(self, content: Mapping[str, Any], key: str, pointer: str) -> bool:
        value = content.get(key, False)
        if not isinstance(value, bool):
            self._note(f"{pointer}/{key}", "wrong_type", "Expected true or false.")
        return value is True

    def _data(self, content: Mapping[str, Any], key: str, pointer: str) -> str:
        """Base64 of a PEM text."""
        written = self._text(content, key, pointer)
        try:
            return base64.b64decode("".join(written.split()), validate=True).decode("ascii")
        except ValueError:  # of the alphabet, the padding or the decoded text
            self._note(f"{pointer}/{key}", "not_base64", f"Expected base64 of a PEM text: {MINIFY}.")
            return ""


def _as_rung_error(refusal: DocumentInvalid) -> RungError:
    problems = [Problem(each.pointer, each.code, each.message, line=each.line) for each in refusal.problems]
    return ERRORS[refusal.status](problems[0].message, code=problems[0].code, problems=problems)
