"""Rows of the workloads, split by topic."""

from workloads.models.dictionary import Category, PreemptionPolicy, Priority, WorkloadType
from workloads.models.history import EventType, PreemptionCause, PreemptionRecord, WorkloadEvent
from workloads.models.notifications import (
    Delivery,
    DeliveryState,
    NotificationChannel,
    NotificationState,
    Subscription,
)
from workloads.models.plan import Plan, PlanState
from workloads.models.policy import Policy
from workloads.models.report import Report, ReportGroup, ReportStatus
from workloads.models.template import Asset, AssetKind, TemplateKind, WorkloadTemplate
from workloads.models.workload import DesiredPhase, IdempotencyKey, Phase, Workload

__all__ = [
    "Asset",
    "AssetKind",
    "Category",
    "Delivery",
    "DeliveryState",
    "DesiredPhase",
    "EventType",
    "IdempotencyKey",
    "NotificationChannel",
    "NotificationState",
    "Phase",
    "Plan",
    "PlanState",
    "Policy",
    "PreemptionCause",
    "PreemptionPolicy",
    "PreemptionRecord",
    "Priority",
    "Report",
    "ReportGroup",
    "ReportStatus",
    "Subscription",
    "TemplateKind",
    "Workload",
    "WorkloadEvent",
    "WorkloadTemplate",
    "WorkloadType",
]
