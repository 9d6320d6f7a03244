"""The second factor of people: codes of an authenticator app (RFC 6238), and recovery codes for when it is lost.

Tables and arithmetic are allauth's. What is added here: a code counts once, in whatever process, because the row keeps
the period of the last one; and everything is recorded.

Secrets of second factors lie in the database sealed with a key made of the secret key, never in the clear.
"""

import base64
from typing import Final

from allauth.core.internal.cryptokit import compare_user_code
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal import auth as totp
from allauth.mfa.utils import decrypt, encrypt
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _

from portal.audit.services import record, record_refusal
from portal.kit.errors import Conflict, ValidationFailed
from portal.kit.security.actors import Actor, ActorKind, Channel
from tenants.access.models import User
from tenants.access.selectors import access_for
from tenants.access.services.access_rules import require_outranks

PURPOSE: Final = b"rung second factor"


class EncryptedSecretsAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # allauth carries no types
    """allauth's hook for secrets at rest. What an older secret key sealed can be read while that key is still named."""

    def encrypt(self, text: str) -> str:
        """Seal with the newest key."""
        return _sealer().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Open; empty, which no code fits, if no key of ours does."""
        try:
            return _sealer().decrypt(encrypted_text.encode()).decode()
        except InvalidToken:
            return ""


def _sealer() -> MultiFernet:
    return MultiFernet([_key(secret) for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)])


def _key(secret: str) -> Fernet:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=PURPOSE).derive(secret.encode())
    return Fernet(base64.urlsafe_b64encode(derived))


LONGEST_CODE: Final = 40


def is_enabled(user: User) -> bool:
    """True once an app was confirmed."""
    return bool(Authenticator.objects.filter(user=user, type=Authenticator.Type.TOTP).exists())


def is_required(user: User) -> bool:
    """True for users that `RUNG_MFA_REQUIRED` names."""
    if settings.RUNG_MFA_REQUIRED == "everyone":
        return True
    person = Actor(ActorKind.USER, str(user.pk), user.get_username(), Channel.UI)
    return settings.RUNG_MFA_REQUIRED == "admins" and access_for(person).is_platform_admin


def remaining_codes(user: User) -> int:
    """How many recovery codes were not used yet."""
    row = Authenticator.objects.filter(user=user, type=Authenticator.Type.RECOVERY_CODES).first()
    return len(RecoveryCodes(row).get_unused_codes()) if row is not None else 0


@transaction.atomic
def enable(*, user: User, secret: str, code: str, actor: Actor) -> list[str]:
    """Turn it on: the app knows the secret, for it showed this code. Answers recovery codes, for once to be seen.

    All their sessions end: an attacker with the password only may have one.
    """
    User.objects.select_for_update().get(pk=user.pk)
    if is_enabled(user):
        raise Conflict(_("An authenticator app is already set up. Remove it first."), code="exists")
    period = _period_of(secret, code)
    if period is None:
        raise ValidationFailed.at("/code", "wrong_code", _("Wrong code. Enter the current code of the app."))
    sealed = {"secret": encrypt(secret), "period": period}
    Authenticator.objects.create(user=user, type=Authenticator.Type.TOTP, data=sealed)
    codes = _new_codes(user)
    user.end_sessions()
    record(actor, "second_factor.create", user, entity_type="user")
    return codes


def accept_code(*, user: User, code: str) -> str:
    """Is this a code of theirs that was not used yet? Answers its kind, empty for none. It is used up by that."""
    if not 0 < len(code) <= LONGEST_CODE:
        return ""
    if _verify_app_code(user, code):
        return "app"
    row = Authenticator.objects.filter(user=user, type=Authenticator.Type.RECOVERY_CODES).first()
    return "recovery" if row is not None and RecoveryCodes(row).validate_code(code) else ""


def reauthenticate(*, user: User, proof: str, actor: Actor) -> None:
    """Show again who one is: by the password, or a code where there is none. Refused, and recorded, if it is wrong."""
    if user.check_password(proof) if user.has_usable_password() else accept_code(user=user, code=proof):
        return
    wrong = ValidationFailed.at("/proof", "wrong_proof", _("This is wrong."))
    record_refusal(actor, "user.prove", wrong, entity=user)
    raise wrong


@transaction.atomic
def renew_codes(*, user: User, actor: Actor) -> list[str]:
    """New recovery codes; the old ones stop working."""
    if not is_enabled(user):
        raise Conflict(_("No authenticator app is set up."), code="absent")
    codes = _new_codes(user)
    record(actor, "second_factor.recovery_codes", user, entity_type="user")
    return codes


@transaction.atomic
def remove(*, user: User, actor: Actor) -> None:
    """Turn one's own off. Who must have one sets up another at once."""
    Authenticator.objects.filter(user=user).delete()
    record(actor, "second_factor.delete", user, entity_type="user")


@transaction.atomic
def reset(*, user: User, actor: Actor) -> bool:
    """Turn off that of a user who lost app and codes, and end their sessions; False if there was none."""
    require_outranks(actor, user)
    if not Authenticator.objects.filter(user=user).delete()[0]:
        return False
    user.end_sessions()
    record(actor, "second_factor.reset", user, entity_type="user")
    return True


@transaction.atomic
def _verify_app_code(user: User, code: str) -> bool:
    """True for a code of a period later than the last one used. The row is locked: of two at once one is late."""
    row = Authenticator.objects.select_for_update().filter(user=user, type=Authenticator.Type.TOTP).first()
    if row is None:
        return False
    secret = decrypt(row.data["secret"])
    period = _period_of(secret, code)
    if period is None or period <= row.data["period"]:
        return False
    row.data = {"secret": encrypt(secret), "period": period}  # encrypted again, with the newest key
    row.save(update_fields=["data"])
    row.record_usage()
    return True


def _period_of(secret: str, code: str) -> int | None:
    """The period, of those around now, in which the app shows the code. A secret that cannot be read fits none."""
    if not secret:
        return None
    for period in totp.yield_hotp_counters_from_time():
        if compare_user_code(actual=code, expected=totp.format_hotp_value(totp.hotp_value(secret, period))):
            return int(period)
    return None


def _new_codes(user: User) -> list[str]:
    Authenticator.objects.filter(user=user, type=Authenticator.Type.RECOVERY_CODES).delete()
    codes: list[str] = RecoveryCodes.activate(user).generate_codes()
    return codes
