"""Access keys, service accounts and people through Run:ai's own client: every method of the three groups."""

from typing import Any

import pytest
from runai import models
from runai.api_client import ApiClient
from runai.configuration import Configuration
from runai.exceptions import (
    BadRequestException,
    ConflictException,
    ForbiddenException,
    NotFoundException,
    UnauthorizedException,
)
from runai.runai_client import AuthenticationAndAuthorization, RunaiClient

from portal.audit.models import AuditRecord
from tenants.access.models import AccessKey, Role, ServiceAccount, User
from tenants.access.services import credentials
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.factories.tenants import PASSWORD
from tests.runapy.conftest import client_of


def by_key(address: object, client_id: str, secret: str) -> RunaiClient:
    """Their client, signed in by an access key: it has one way for accounts and keys."""
    return RunaiClient(ApiClient(Configuration(client_id=client_id, client_secret=secret, runai_base_url=str(address))))


@pytest.fixture
def admins(runai: RunaiClient) -> AuthenticationAndAuthorization:
    """The groups of a platform admin's client."""
    return runai.authentication_and_authorization


@pytest.fixture
def alices(live_server: object, alice: User) -> AuthenticationAndAuthorization:
    """The groups of Alice's client, by a key of hers."""
    key, secret = credentials.create_access_key(name="laptop", actor=acting(alice))
    return by_key(live_server, key.client_id, secret).authentication_and_authorization


class TestAccessKeys:
    """The seven methods of `access_keys`."""

    def test_a_key_is_made_and_works(
        self, live_server: object, alices: AuthenticationAndAuthorization, llm_team: Project
    ) -> None:
        answer = alices.access_keys.create_access_key1(models.AccessKeyCreationRequest1(name="nightly"))
        made = models.AccessKeyPostResponse.from_dict(answer.data)
        assert answer.status_code == 201
        client = by_key(live_server, made.client_id, made.client_secret)
        (project,) = client.organizations.projects.get_projects().data["projects"]
        assert project["name"] == "llm-team"
        assert AccessKey.objects.get(pk=made.id).last_login is not None

    def test_keys_are_listed_and_read_without_their_secret(self, alices: AuthenticationAndAuthorization) -> None:
        (listed,) = models.AccessKeys.from_dict(alices.access_keys.get_access_keys().data).access_keys
        assert (listed.name, listed.last_login is None) == ("laptop", False)
        read = alices.access_keys.get_access_key_by_id1(listed.id)
        assert models.AccessKey1.from_dict(read.data) == listed
        assert "ecret" not in str(read.data)

    def test_another_secret_ends_the_old_one_and_its_tokens(
        self, live_server: object, alices: AuthenticationAndAuthorization
    ) -> None:
        key = AccessKey.objects.get()
        secret = alices.access_keys.regenerate_access_key_secret(str(key.pk)).data["clientSecret"]
        assert (
            by_key(live_server, key.client_id, secret)
            .authentication_and_authorization.access_keys.get_access_keys()
            .status_code
            == 200
        )
        with pytest.raises(UnauthorizedException):  # a change, since their client repeats everything else
            alices.service_accounts.update_service_account_by_id(str(key.pk), {"enabled": True})

    def test_a_revoked_key_is_gone(self, alices: AuthenticationAndAuthorization) -> None:
        made = alices.access_keys.create_access_key1({"name": "nightly"}).data
        assert alices.access_keys.delete_access_key_by_id(made["id"]).status_code == 204
        with pytest.raises(NotFoundException):
            alices.access_keys.get_access_key_by_id1(made["id"])

    def test_platform_admins_see_and_revoke_everybodys(
        self, admins: AuthenticationAndAuthorization, alices: AuthenticationAndAuthorization, bob: User
    ) -> None:
        key, _ = credentials.create_access_key(name="bobs", actor=acting(bob))
        keys = admins.access_keys
        of_bob = models.AccessKeysAdministration.from_dict(keys.get_access_keys_administration(created_by="bob").data)
        assert [(each.name, each.created_by) for each in of_bob.access_keys] == [("bobs", "bob")]
        by_id = keys.get_access_keys_administration(client_id=key.client_id).data
        assert [each["id"] for each in by_id["accessKeys"]] == [str(key.pk)]
        assert len(keys.get_access_keys_administration().data["accessKeys"]) == 2
        assert keys.delete_access_key_by_id_administration(str(key.pk)).status_code == 204
        assert not AccessKey.objects.filter(owner=bob).exists()

    def test_others_do_not(self, alices: AuthenticationAndAuthorization, bob: User) -> None:
        key, _ = credentials.create_access_key(name="bobs", actor=acting(bob))
        with pytest.raises(ForbiddenException):
            alices.access_keys.get_access_keys_administration()
        with pytest.raises(NotFoundException):
            alices.access_keys.get_access_key_by_id1(str(key.pk))

    def test_a_taken_name_is_a_conflict(self, alices: AuthenticationAndAuthorization) -> None:
        with pytest.raises(ConflictException):
            alices.access_keys.create_access_key1(models.AccessKeyCreationRequest1(name="laptop"))

    def test_older_scripts_call_them_user_applications(
        self, live_server: object, alices: AuthenticationAndAuthorization
    ) -> None:
        old = alices.user_applications
        made = models.UserAppPostResponse.from_dict(old.create_user_application({"name": "nightly"}).data)
        assert by_key(live_server, made.client_id, made.secret)
        assert models.UserApp.from_dict(old.get_user_application_by_id(made.id).data).name == "nightly"
        assert {each["name"] for each in old.get_user_applications().data} == {"laptop", "nightly"}
        assert old.regenerate_user_application_secret(made.id).data["secret"] != made.secret
        assert old.delete_user_application_by_id(made.id).status_code == 204

    def test_and_administer_them_so(
        self, admins: AuthenticationAndAuthorization, alices: AuthenticationAndAuthorization
    ) -> None:
        (listed,) = admins.user_applications.get_user_applications_administration().data
        found = models.UserAppAdministration.from_dict(listed)
        assert found.created_by == "alice"
        assert admins.user_applications.delete_user_application_by_id_administration(found.id).status_code == 204


class TestServiceAccounts:
    """The six methods of `service_accounts`."""

    @pytest.fixture
    def made(self, admins: AuthenticationAndAuthorization) -> models.ServiceAccountPostResponse:
        request = models.ServiceAccountCreationRequest(name="pipeline")
        answer = admins.service_accounts.create_service_account(request)
        assert answer.status_code == 201
        return models.ServiceAccountPostResponse.from_dict(answer.data)

    def test_one_is_made_listed_and_read(
        self, live_server: object, admins: AuthenticationAndAuthorization, made: models.ServiceAccountPostResponse
    ) -> None:
        by_key(live_server, made.client_id, made.client_secret)
        accounts = [
            models.ServiceAccount.from_dict(each) for each in admins.service_accounts.get_service_accounts().data
        ]
        assert {each.name for each in accounts} == {"moving-script", "pipeline"}
        read = models.ServiceAccount.from_dict(admins.service_accounts.get_service_account_by_id(made.id).data)
        assert (read.name, read.enabled, read.created_by) == ("pipeline", True, "moving-script")
        assert read.last_login is not None

    def test_it_is_shut_out_and_let_in_again(
        self, live_server: object, admins: AuthenticationAndAuthorization, made: models.ServiceAccountPostResponse
    ) -> None:
        def switch(*, enabled: bool) -> None:
            request = models.ServiceAccountPatchRequest(enabled=enabled)
            answer = admins.service_accounts.update_service_account_by_id(made.id, request)
            assert (answer.status_code, answer.data) == (200, None)

        switch(enabled=False)
        with pytest.raises(ValueError, match="invalid_client"):
            by_key(live_server, made.client_id, made.client_secret)
        switch(enabled=True)
        assert by_key(live_server, made.client_id, made.client_secret)

    def test_another_secret_replaces_the_old_one(
        self, live_server: object, admins: AuthenticationAndAuthorization, made: models.ServiceAccountPostResponse
    ) -> None:
        secret = admins.service_accounts.regenerate_service_account_secret(made.id).data["clientSecret"]
        assert by_key(live_server, made.client_id, secret)
        with pytest.raises(ValueError, match="invalid_client"):
            by_key(live_server, made.client_id, made.client_secret)

    def test_it_is_removed(
        self, admins: AuthenticationAndAuthorization, made: models.ServiceAccountPostResponse
    ) -> None:
        assert admins.service_accounts.delete_service_account_by_id(made.id).status_code == 204
        with pytest.raises(NotFoundException):
            admins.service_accounts.get_service_account_by_id(made.id)

    def test_a_taken_name_is_a_conflict(
        self, admins: AuthenticationAndAuthorization, made: models.ServiceAccountPostResponse
    ) -> None:
        with pytest.raises(ConflictException):
            admins.service_accounts.create_service_account({"name": "pipeline"})

    def test_others_make_none(self, live_server: object, llm_team: Project) -> None:
        client = client_of(live_server, "owning-script", Role.OWNER, project=llm_team)
        owner = client.authentication_and_authorization
        with pytest.raises(ForbiddenException):
            owner.service_accounts.create_service_account({"name": "pipeline"})
        with pytest.raises(ForbiddenException):
            owner.service_accounts.get_service_accounts()

    def test_older_scripts_call_them_applications(
        self, live_server: object, admins: AuthenticationAndAuthorization
    ) -> None:
        old = admins.applications
        made = models.ApplicationPostResponse.from_dict(old.create_application({"name": "pipeline"}).data)
        assert by_key(live_server, made.client_id, made.secret)
        assert models.Application.from_dict(old.get_application_by_id(made.id).data).name == "pipeline"
        assert len(old.get_applications().data) == 2
        old.update_application_by_id(made.id, models.ApplicationPatchRequest(enabled=False))
        assert not ServiceAccount.objects.get(pk=made.id).enabled
        assert old.regenerate_application_secret(made.id).data["secret"] != made.secret
        assert old.delete_application_by_id(made.id).status_code == 204


class TestPeople:
    """The eight methods of `users`."""

    def make(self, admins: AuthenticationAndAuthorization, email: str = "dana@example.com") -> models.UserPostResponse:
        answer = admins.users.create_user(models.UserCreationRequest1(email=email))
        assert answer.status_code == 201
        return models.UserPostResponse.from_dict(answer.data)

    def test_one_is_made_with_a_temporary_password_and_read(self, admins: AuthenticationAndAuthorization) -> None:
        made = self.make(admins)
        assert User.objects.get(pk=made.id).check_password(made.temp_password)
        read = models.User2.from_dict(admins.users.get_user_by_id(made.id).data)
        assert (read.username, read.created_by, read.is_local, read.groups) == (
            "dana@example.com",
            "moving-script",
            True,
            [],
        )

    def test_people_are_listed_counted_filtered_and_sorted(
        self, admins: AuthenticationAndAuthorization, alice: User, bob: User
    ) -> None:
        User.objects.filter(pk=bob.pk).update(password="!")

        def names(**requested: Any) -> list[str]:
            return [models.User2.from_dict(each).username for each in admins.users.get_users(**requested).data]

        assert names() == ["alice", "bob"]
        assert names(sort_by=models.UsersFilterSortFields.USERNAME, sort_order="desc", limit=1) == ["bob"]
        assert names(offset=1) == ["bob"]
        assert names(search="lic") == names(filter_by=["isLocal==true"]) == ["alice"]
        assert names(filter_by=["username=@bo", "creationTime>=2024-09-24T00:00:00.00Z"]) == ["bob"]
        assert admins.users.count_users(search="lic").data == {"count": 1}
        assert admins.users.count_users().data == {"count": 2}
        with pytest.raises(BadRequestException):
            names(filter_by=["password=^x"])

    def test_a_forgotten_password_is_replaced(self, admins: AuthenticationAndAuthorization, alice: User) -> None:
        temporary = admins.users.reset_user_password(str(alice.pk)).data["tempPassword"]
        alice.refresh_from_db()
        assert alice.check_password(temporary)

    def test_somebody_is_signed_out(self, admins: AuthenticationAndAuthorization, alice: User, client_of: Any) -> None:
        session = client_of(alice)
        assert session.get("/projects/").status_code == 200
        assert admins.users.logout_user(str(alice.pk)).data is None
        assert session.get("/projects/").status_code == 302

    def test_somebody_is_removed_with_their_keys(
        self, admins: AuthenticationAndAuthorization, alices: AuthenticationAndAuthorization, alice: User
    ) -> None:
        assert admins.users.delete_user_by_id(str(alice.pk)).status_code == 204
        assert not AccessKey.objects.exists()
        with pytest.raises(NotFoundException):
            admins.users.get_user_by_id(str(alice.pk))

    def test_everybody_changes_their_own_password(self, alices: AuthenticationAndAuthorization, alice: User) -> None:
        fresh = "quite another phrase 8"
        request = models.UserChangePasswordRequest(current_password=PASSWORD, new_password=fresh)
        assert alices.users.change_user_password(request).data == {}
        alice.refresh_from_db()
        assert alice.check_password(fresh)
        assert fresh not in str(list(AuditRecord.objects.values()))

    def test_others_see_nobody(self, alices: AuthenticationAndAuthorization, bob: User) -> None:
        with pytest.raises(ForbiddenException):
            alices.users.get_users()
        with pytest.raises(ForbiddenException):
            alices.users.get_user_by_id(str(bob.pk))


class TestTokens:
    """The methods of `tokens` that ask what Rung gives."""

    def test_one_is_asked_for_by_name(self, alices: AuthenticationAndAuthorization, alice: User) -> None:
        key, secret = credentials.create_access_key(name="desk", actor=acting(alice))
        request = models.TokenRequest(grant_type="app_token", app_id=key.client_id, app_secret=secret)
        assert models.TokenResponse.from_dict(alices.tokens.grant_token(request).data).expires_in == 86_400

    def test_the_second_version_sends_nothing_and_is_told_so(self, alices: AuthenticationAndAuthorization) -> None:
        with pytest.raises(BadRequestException) as refusal:
            alices.tokens.grant_token_v2("client_credentials", client_id="x", client_secret="y")
        assert refusal.value.data["error"] == "invalid_request"
