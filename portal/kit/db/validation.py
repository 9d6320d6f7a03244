"""Turn what rows and texts refuse into Rung's errors, with a pointer at the field."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final, TypeVar

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Model
from django.utils import timezone
from django.utils.translation import gettext as _

from portal.kit.errors import Conflict, Problem, ValidationFailed

M = TypeVar("M", bound=Model)
LONGEST_TEXT: Final = 2000
TAKEN: Final = frozenset({"unique", "unique_together"})


def camel(field: str) -> str:
    """`default_node_pools` as named in JSON: `defaultNodePools`."""
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


def raise_problems(
    problems: Iterable[Problem], error: type[ValidationFailed] | type[Conflict] = ValidationFailed
) -> None:
    """Raise one error that carries all problems, if there are any."""
    if found := tuple(problems):
        raise error(found[0].message, code=found[0].code, problems=found)


def validate_instance(instance: M, *, exclude: Iterable[str] = ()) -> M:
    """The instance, if its own fields and constraints accept it. Conflict for a taken name, else ValidationFailed."""
    try:
        instance.full_clean(exclude=set(exclude))
    except ValidationError as error:
        found = tuple(_problems(error.error_dict))
        kind = Conflict if all(problem.code == "taken" for problem in found) else ValidationFailed
        raise kind(found[0].message, code=found[0].code, problems=found) from None
    return instance


def _problems(errors: Mapping[str, list[ValidationError]]) -> Iterator[Problem]:
    for field, refusals in errors.items():
        pointer = "" if field == NON_FIELD_ERRORS else f"/{camel(field)}"
        for refusal in refusals:
            code = "taken" if refusal.code in TAKEN else str(refusal.code or "invalid")
            yield Problem(pointer, code, " ".join(refusal.messages))


@contextmanager
def unique_or_conflict(pointer: str) -> Iterator[None]:
    """A save that may lose a race for a unique name: Conflict instead of the database's error."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError:
        text = _("Another user changed this at the same time. Reload the page.")
        raise Conflict(text, code="taken", problems=[Problem(pointer, "taken", text)]) from None


def validate_text(pointer: str, text: str, *, longest: int = LONGEST_TEXT) -> str:
    """The text, stripped. Refused when it is too long or holds control characters (line breaks and tabs are fine)."""
    if len(text) > longest:
        raise ValidationFailed.at(
            pointer, "too_long", _("At most %(most)s characters.") % {"most": longest}, longest=longest
        )
    if not all(letter.isprintable() or letter in "\n\r\t" for letter in text):
        raise ValidationFailed.at(pointer, "control_characters", _("Control characters are not allowed."))
    return text.strip()


def validate_future(pointer: str, moment: datetime | None) -> datetime | None:
    """When something runs out, None for never. ValidationFailed unless it lies ahead."""
    if moment is not None and moment <= timezone.now():
        raise ValidationFailed.at(pointer, "in_the_past", _("Must be in the future."))
    return moment


MAX_REASON_LENGTH: Final = 500
