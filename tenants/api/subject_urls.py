"""REST routes of people, their access keys, and service accounts."""

from django.urls import path

from tenants.api import access_keys, applications, service_accounts, users

urlpatterns = [
    path("v1/access-keys", access_keys.AccessKeys.as_view()),
    path("v1/access-keys/<uuid:key_id>", access_keys.OneAccessKey.as_view()),
    path("v1/access-keys/<uuid:key_id>/secret", access_keys.AccessKeySecret.as_view()),
    path("v1/administration/access-keys", access_keys.AdministeredKeys.as_view()),
    path("v1/administration/access-keys/<uuid:key_id>", access_keys.OneAdministeredKey.as_view()),
    path("v1/user-applications", applications.UserApplications.as_view()),
    path("v1/user-applications/<uuid:key_id>", applications.OneUserApplication.as_view()),
    path("v1/user-applications/<uuid:key_id>/secret", applications.UserApplicationSecret.as_view()),
    path("v1/administration/user-applications", applications.AdministeredApplications.as_view()),
    path("v1/administration/user-applications/<uuid:key_id>", applications.OneAdministeredApplication.as_view()),
    path("v1/service-accounts", service_accounts.ServiceAccounts.as_view()),
    path("v1/service-accounts/<uuid:account_id>", service_accounts.OneServiceAccount.as_view()),
    path("v1/service-accounts/<uuid:account_id>/secret", service_accounts.ServiceAccountSecret.as_view()),
    path("v1/apps", applications.Applications.as_view()),
    path("v1/apps/<uuid:account_id>", applications.OneApplication.as_view()),
    path("v1/apps/<uuid:account_id>/secret", applications.ApplicationSecret.as_view()),
    path("v1/users", users.Users.as_view()),
    path("v1/users/count", users.UserCount.as_view()),
    path("v1/users/<int:user_id>", users.OneUser.as_view()),
    path("v1/users/<int:user_id>/password", users.UserPassword.as_view()),
    path("v1/users/<int:user_id>/logout", users.UserLogout.as_view()),
    path("v1/me/password", users.OwnPassword.as_view()),
]
