"""Submission of documents: a dry run of all of them comes first, and each has an idempotency key of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rung_cli.errors import ApiError, UsageError
from rung_cli.http.client import Api, unless_busy
from rung_cli.manifests.documents import ManifestDocument
from rung_cli.output.errors import print_error
from rung_cli.output.formats import Format
from rung_cli.output.stderr import note, progress
from rung_cli.output.submission import with_preview

Explicit = Mapping[str, str]


def previewed(api: Api, path: str, body: Mapping[str, Any], form: Format, *, key: str = "") -> Mapping[str, Any]:
    """The answer to a submission; as a table, with the forecast of a dry run that comes first."""
    if form is not Format.TABLE:
        return dict(api.post(path, body, key=key))
    tried = unless_busy(lambda: api.post(path, body, key=key, dry_run=True))
    return with_preview(api.post(path, body, key=key), tried)


@dataclass(frozen=True, slots=True)
class ManifestSubmission:
    """What was read, where it goes, and what was chosen beside it. `key` binds all of them; empty makes fresh ones."""

    api: Api
    documents: Sequence[ManifestDocument]
    project: Mapping[str, Any]
    explicit: Explicit
    key: str = ""
    format: Format = Format.TABLE

    def submit(self, *, dry_run: bool) -> list[Any]:
        """The server's answers. ApiError for one document means that none was submitted."""
        if self.explicit.get("name") and len(self.documents) > 1:
            raise UsageError(f"A name cannot be used with {len(self.documents)} manifests.")
        bodies = [self._body(document) for document in self.documents]

        def try_out(number: int) -> Any:
            return self._post(bodies[number], number, dry_run=True)

        if dry_run or len(bodies) > 1:
            tried = self._each(try_out)
        elif self.format is Format.TABLE:
            tried = self._each(lambda number: unless_busy(lambda: try_out(number)))
        if dry_run:
            return tried
        made = self._one_after_another(bodies)
        if self.format is not Format.TABLE:
            return made
        return [with_preview(*each) for each in zip(made, tried, strict=True)]

    def explain(self) -> list[Any]:
        """What each of them would become, and what would happen to it."""
        bodies = [self._body(document) for document in self.documents]
        return self._each(lambda number: self.api.read("v2/workloads/explain", bodies[number]))

    def _one_after_another(self, bodies: Sequence[Any]) -> list[Any]:
        """What was submitted before one was refused is printed: it stays submitted."""
        made = list[Any]()
        for number, body in enumerate(bodies):
            self._progress("Submitting", number)
            try:
                made.append(self._post(body, number, dry_run=False))
            except ApiError as refusal:
                refusal.where = str(self.documents[number])
                if made:
                    progress("")
                    note(f"Already submitted: {', '.join(each['metadata']['name'] for each in made)}.")
                raise
        progress("")
        return made

    def _post(self, body: Any, number: int, *, dry_run: bool) -> Any:
        numbered = self.key if len(self.documents) == 1 or not self.key else f"{self.key}-{number}"
        return self.api.post("v2/workloads", body, key=numbered, dry_run=dry_run)

    def _each(self, ask: Callable[[int], Any]) -> list[Any]:
        """Submit every document; print the refusals of all of them."""
        answers, refusals = list[Any](), list[ApiError]()
        for number, document in enumerate(self.documents):
            self._progress("Explaining", number)
            try:
                answers.append(ask(number))
            except ApiError as refusal:
                refusal.where = str(document)
                refusals.append(refusal)
        progress("")
        for earlier in refusals[:-1]:
            print_error(earlier, self.format)
        if refusals:
            raise refusals[-1]
        return answers

    def _progress(self, doing: str, number: int) -> None:
        if len(self.documents) > 1:
            progress(f"{doing} {number + 1} of {len(self.documents)} …")

    def _body(self, document: ManifestDocument) -> dict[str, Any]:
        chosen = {name: value for name, value in self.explicit.items() if value}
        metadata = {**chosen, "projectId": self.project["id"]}
        return {"metadata": metadata, "manifestBase64Encoded": document.encoded}
