"""REST routes of notifications."""

from django.urls import path

from workloads.api import notifications

urlpatterns = [
    path("v1/notification-types", notifications.NotificationTypes.as_view()),
    path("v1/notification-state", notifications.State.as_view()),
    path("v1/notification-channels", notifications.Channels.as_view()),
    path("v1/notification-channels/<str:channel_name>", notifications.OneChannel.as_view()),
    path("v1/notification-channels/<str:channel_name>/trial-messages", notifications.TrialMessages.as_view()),
    path("v1/validate-notification-channel", notifications.ChannelTrial.as_view()),
    path("v1/subscriptions", notifications.Subscriptions.as_view()),
    path("v1/subscriptions/<uuid:subscription_id>", notifications.OneSubscription.as_view()),
]
