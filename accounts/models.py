"""Users and their keys; the marks that make a refresh token good once; the memory of wrong passwords."""

import re
import secrets
import unicodedata
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.crypto import salted_hmac

from accounts import scopes

DEFAULT_AGENT = "hermes"
RESERVED_NAMES = frozenset({DEFAULT_AGENT})
AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


def validate_username(value: str) -> None:
    """
    A username is the user id on the wire: 1 to 150 characters, any but control characters.

    Raises:
        ValidationError: If it is not.
    """
    if not 1 <= len(value) <= 150:
        raise ValidationError("A username has 1 to 150 characters.")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        raise ValidationError("A username has no control characters.")
    if value in RESERVED_NAMES:
        raise ValidationError(f"The name {value} is reserved for agents.")


def validate_agent_name(value: str) -> None:
    """
    An agent's name is `[a-z0-9][a-z0-9_-]{0,31}`.

    Raises:
        ValidationError: If it is not.
    """
    if not AGENT_NAME.fullmatch(value):
        raise ValidationError(
            "An agent name has 1 to 32 characters of a-z, 0-9, _ and -, and begins with a-z or 0-9."
        )


def new_epoch() -> str:
    """A random mark; tokens carry it, and one that carries another is no longer good."""
    return secrets.token_hex(8)


class User(AbstractUser):
    """A person; `username` is the user id on the wire and never changes."""

    username = models.CharField(
        max_length=150,
        unique=True,
        validators=[validate_username],
        help_text="1 to 150 characters; cannot be changed later.",
        error_messages={"unique": "A user with that username already exists."},
    )
    epoch = models.CharField(max_length=16, default=new_epoch, editable=False)

    REQUIRED_FIELDS: list[str] = []

    @classmethod
    def normalize_username(cls, username: str) -> str:
        """Usernames are kept as they are: what was given is what the wire shows."""
        return username

    @classmethod
    def from_db(cls, db: Any, field_names: Any, values: Any) -> "User":
        """Remember the name and the password a row came with, to see later whether they change."""
        user = super().from_db(db, field_names, values)
        user._remember()
        return user

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        """What was just read is what is stored."""
        super().refresh_from_db(*args, **kwargs)
        self._remember()

    def _remember(self) -> None:
        self._stored = {name: self.__dict__.get(name) for name in ("username", "password")}

    def check_password(self, raw_password: str) -> bool:
        """Like Django's; a stronger hash that it stores of the same password ends no token."""
        self._rehashing = True
        try:
            return super().check_password(raw_password)
        finally:
            self._rehashing = False

    def clean(self) -> None:
        """Unlike Django's, this leaves the username alone."""
        self.email = type(self).objects.normalize_email(self.email)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """
        Store the user; a changed password renews the epoch, which ends tokens and sockets.

        Raises:
            ValidationError: If the username is not allowed, or would change.
        """
        stored = getattr(self, "_stored", None)
        if self._state.adding:
            validate_username(self.username)
        elif stored and stored["username"] not in (None, self.username):
            raise ValidationError({"username": "A username cannot be changed."})
        changed = stored and stored["password"] not in (None, self.password)
        if changed and not self._state.adding and not getattr(self, "_rehashing", False):
            self.epoch = new_epoch()
            if kwargs.get("update_fields") is not None:
                kwargs["update_fields"] = {*kwargs["update_fields"], "epoch"}
        super().save(*args, **kwargs)
        self._remember()

    def get_session_auth_hash(self) -> str:
        """What a cookie session must still match: password and epoch, so "log out everywhere" ends it too."""
        return self._session_hash()

    def get_session_auth_fallback_hash(self) -> Any:
        """The same under the secret keys before this one."""
        for fallback in settings.SECRET_KEY_FALLBACKS:
            yield self._session_hash(fallback)

    def _session_hash(self, secret: str | None = None) -> str:
        text = f"{self.password}\n{self.epoch}"
        return salted_hmac("accounts.User.session", text, secret=secret, algorithm="sha256").hexdigest()


class ApiKey(models.Model):
    """One API key: its prefix, the digest of the whole, never the key itself."""

    user = models.ForeignKey(User, models.CASCADE, related_name="api_keys")
    agent = models.CharField(
        "agent name", max_length=32, default=DEFAULT_AGENT, validators=[validate_agent_name], blank=False
    )
    label = models.CharField(max_length=100, blank=True, help_text="For you: where this key is used.")
    scopes = models.CharField(max_length=100, default=scopes.join(scopes.DEFAULT))
    prefix = models.CharField(max_length=10, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    issue = models.UUIDField(
        null=True,
        unique=True,
        editable=False,
        help_text="The form this key came from: sent again, it makes no second.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.ForeignKey(
        User, models.SET_NULL, null=True, blank=True, editable=False, related_name="issued_keys"
    )
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Empty: never.")
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        """Newest first in lists."""

        verbose_name = "API key"
        ordering = ["-created_at", "-id"]
        indexes = [models.Index(fields=["user", "agent"], name="apikey_user_agent")]

    def __str__(self) -> str:
        """The public part."""
        return f"hk_{self.prefix}_…"

    @property
    def scope_set(self) -> frozenset[str]:
        """The scopes as a set."""
        return frozenset(scopes.parse(self.scopes))


class UsedRefresh(models.Model):
    """A refresh token that bought another, or was ended by a logout; the row is not needed after `expires_at`."""

    jti = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(User, models.CASCADE, related_name="+")
    used_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)
    ended = models.BooleanField(default=False)

    def __str__(self) -> str:
        """Names no token: a jti opens nothing."""
        return self.jti


class LoginTries(models.Model):
    """The wrong passwords of one account or one address, as the time at which all of them are forgiven."""

    subject = models.CharField(max_length=80, unique=True)
    forgiven_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        """The subject is a digest: no account and no address can be read from it."""
        return self.subject
