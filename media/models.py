"""The rows of media: one uploaded file each, and which agents were sent it."""

import secrets

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q

from media.names import NAME_BYTES


def new_public_id() -> str:
    """The id a client uses: 128 random bits, so that none can be guessed."""
    return f"med_{secrets.token_hex(16)}"


class MediaQuerySet(models.QuerySet["Media"]):
    """Reads of media that keep to what one caller may know."""

    def visible_to(self, owner_id: int, agent: str | None = None) -> "MediaQuerySet":
        """
        What a user has; with an agent's name, only what that agent uploaded or was sent.

        ``agent=None`` means the user itself (its Apps).
        """
        own = self.filter(owner_id=owner_id)
        if agent is None:
            return own
        if not agent:  # the user's own uploads bear an empty name: nobody may ask for them by it
            return own.none()
        granted = MediaGrant.objects.filter(media=OuterRef("pk"), agent=agent)
        return own.filter(Q(agent=agent) | Exists(granted))


class Media(models.Model):
    """
    One uploaded file of one user.

    Several rows may share ``storage_name``: the same bytes under other names. Bytes may go only when the last of
    them has gone.
    """

    class Kind(models.TextChoices):
        """What a frame calls it; it decides which fields the frame has."""

        IMAGE = "image"
        VOICE = "voice"
        VIDEO = "video"
        FILE = "file"

    public_id = models.CharField(max_length=128, unique=True, default=new_public_id)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="media")
    name = models.CharField(max_length=NAME_BYTES, help_text="A safe name to show; never a path.")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    type = models.CharField(max_length=127, help_text="MIME type, from the bytes.")
    size = models.PositiveBigIntegerField(help_text="Bytes.")
    width = models.PositiveIntegerField(null=True, blank=True, help_text="Pixels, as displayed.")
    height = models.PositiveIntegerField(null=True, blank=True, help_text="Pixels, as displayed.")
    duration = models.FloatField(null=True, blank=True, help_text="Seconds; empty when unknown.")
    sha256 = models.CharField(max_length=64, help_text="Of the bytes, in hexadecimal.")
    storage_name = models.CharField(max_length=100, db_index=True, help_text="Where the bytes lie.")
    agent = models.CharField(
        max_length=32, blank=True, default="", help_text="The agent that uploaded it, if one did."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = MediaQuerySet.as_manager()

    class Meta:
        verbose_name = "media file"
        verbose_name_plural = "media files"
        constraints = [
            models.UniqueConstraint(fields=["owner", "sha256", "name"], name="media_once_per_owner_and_name"),
        ]
        indexes = [models.Index(fields=["owner", "-created_at"], name="media_owner_newest")]

    def __str__(self) -> str:
        return f"{self.public_id} ({self.kind})"


class MediaGrant(models.Model):
    """An agent of the owner was sent this file, and may download it."""

    media = models.ForeignKey(Media, models.CASCADE, related_name="grants")
    agent = models.CharField(max_length=32)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["media", "agent"], name="media_granted_once")]

    def __str__(self) -> str:
        return f"{self.media_id} to {self.agent}"
