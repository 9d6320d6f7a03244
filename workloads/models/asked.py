"""What somebody asks for and a worker does later, with no more rights than the credential that asked had."""

from django.db import models

from portal.core.actors import Actor, ActorKind, Channel, Limits


class Asked(models.Model):
    """Who asked, and as far as their access key reached."""

    subject_kind = models.CharField(max_length=20)
    subject_id = models.CharField(max_length=64)
    subject_name = models.CharField(max_length=254)
    project_id = models.BigIntegerField(null=True, help_text="Its access key was bound to this project.")
    department_id = models.BigIntegerField(null=True)

    class Meta:
        abstract = True

    def ask(self, actor: Actor) -> None:
        """Keep who asks."""
        self.subject_kind, self.subject_id, self.subject_name = str(actor.kind), actor.id, actor.name
        self.project_id = actor.limits.project_id if actor.limits else None
        self.department_id = actor.limits.department_id if actor.limits else None

    @property
    def asker(self) -> Actor:
        """Who asked, as a worker acts for them; what they may do is read anew."""
        limits = Limits(project_id=self.project_id, department_id=self.department_id)
        kind = ActorKind(self.subject_kind)
        return Actor(kind, self.subject_id, self.subject_name, Channel.WORKER, limits=limits if limits.bound else None)
