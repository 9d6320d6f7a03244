"""How a new access key is used, ready to copy. A secret is read or piped, never an argument or part of the history."""

from dataclasses import dataclass
from typing import Final

_SHELL: Final = """\
export RUNG_URL='{address}'
export RUNG_CLIENT_ID='{client_id}'
read -rs RUNG_CLIENT_SECRET && export RUNG_CLIENT_SECRET
"""
_RUNG: Final = """\
rung whoami  # at once; the next line signs in for good
printf %s "$RUNG_CLIENT_SECRET" |
  rung login "$RUNG_URL" --client-id "$RUNG_CLIENT_ID" --secret-stdin
"""
_CURL: Final = """\
TOKEN=$(printf '{"grantType": "client_credentials", "clientId": "%s", "clientSecret": "%s"}' \\
    "$RUNG_CLIENT_ID" "$RUNG_CLIENT_SECRET" |
  curl -fsS --data-binary @- "$RUNG_URL/api/v1/token" |
  sed 's/.*"accessToken": *"\\([^"]*\\)".*/\\1/')
printf 'Authorization: Bearer %s' "$TOKEN" |
  curl -fsS -H @- "$RUNG_URL/api/v1/org-unit/projects"
"""
_PYTHON: Final = """\
import os

from runai.api_client import ApiClient
from runai.configuration import Configuration
from runai.runai_client import RunaiClient

configuration = Configuration(
    client_id=os.environ["RUNG_CLIENT_ID"],
    client_secret=os.environ["RUNG_CLIENT_SECRET"],
    runai_base_url=os.environ["RUNG_URL"],
)
client = RunaiClient(ApiClient(configuration))
print(client.organizations.projects.get_projects().data)
"""


@dataclass(frozen=True, slots=True)
class Example:
    """Lines to copy, under a short name."""

    name: str
    text: str


def examples_of(*, address: str, client_id: str) -> list[Example]:
    """First the environment that the others expect: address, client id, and the secret, which is asked for."""
    shell = _SHELL.format(address=address, client_id=client_id)
    return [Example("shell", shell), Example("rung", _RUNG), Example("curl", _CURL), Example("Python", _PYTHON)]
