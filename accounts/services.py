"""What can be done with users and keys; every door (HTTP, admin, commands) calls these."""

import datetime
import uuid

from django.conf import settings
from django.contrib import auth as django_auth
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from accounts import keys, scopes, tokens
from accounts.models import DEFAULT_AGENT, ApiKey, UsedRefresh, User, new_epoch, validate_agent_name
from hermes_site.errors import Unauthorized

PREFIX_TRIES = 5


# --- Logins --------------------------------------------------------------------------------------------------------
def check_password(request: HttpRequest, username: str, password: str) -> User:
    """
    The user whose password this is.

    Raises:
        Unauthorized: If it is nobody's, or the user is disabled: the answer is the same.
        RateLimited: If there were too many wrong ones.
    """
    user = django_auth.authenticate(request, username=username, password=password)
    if not isinstance(user, User):
        raise Unauthorized("wrong user name or password")
    return user


def log_in(request: HttpRequest, username: str, password: str) -> tokens.Pair:
    """
    Tokens for a user name and a password.

    Raises:
        Unauthorized: If they do not fit.
        RateLimited: If there were too many wrong ones.
    """
    user = check_password(request, username, password)
    django_auth.user_logged_in.send(sender=type(user), request=request, user=user)
    return tokens.pair(user)


def refresh(text: str) -> tokens.Pair:
    """
    New tokens for a refresh token, which is used up by it.

    The same token again within HERMES_REFRESH_REPEAT_SECONDS gets the same answer: two tabs, or an answer that was lost.

    Raises:
        Unauthorized: If the token is no good, was used before that time, or was ended.
    """
    claims = tokens.read_refresh(text)
    user = User.objects.filter(pk=claims.user_id, username=claims.username, epoch=claims.epoch).first()
    if user is None or not user.is_active:
        raise Unauthorized("this token is no longer valid")
    used, _ = _mark_used(claims, user, ended=False)
    age = timezone.now() - used.used_at
    if used.ended or age > datetime.timedelta(seconds=settings.HERMES_REFRESH_REPEAT_SECONDS):
        raise Unauthorized("this token was used already")
    return tokens.pair(user, issued_at=used.used_at.timestamp(), after=claims.jti)


def log_out(text: str) -> None:
    """
    End a refresh token and those it has bought, so that no more access tokens come of it.

    Raises:
        Unauthorized: If it is not a refresh token of ours.
    """
    claims = tokens.read_refresh(text)
    user = User.objects.filter(pk=claims.user_id).first()
    if user is None:
        raise Unauthorized("this token is no longer valid")
    UsedRefresh.objects.filter(expires_at__lt=timezone.now()).delete()
    used, made = _mark_used(claims, user, ended=True)
    while not made:
        UsedRefresh.objects.filter(pk=used.pk).update(ended=True)
        claims = tokens.Claims(
            username=claims.username,
            user_id=claims.user_id,
            epoch=claims.epoch,
            jti=tokens.successor(claims.jti) or "",
            expires_at=used.used_at.timestamp() + settings.HERMES_REFRESH_SECONDS,
        )
        used, made = _mark_used(claims, user, ended=True)


def log_out_everywhere(user: User) -> None:
    """End all tokens, cookie sessions and App sockets of a user; API keys go on."""
    user.epoch = new_epoch()
    user.save(update_fields=["epoch"])


def _mark_used(claims: tokens.Claims, user: User, ended: bool) -> tuple[UsedRefresh, bool]:
    """The mark of this refresh token, and whether it was made just now."""
    return UsedRefresh.objects.get_or_create(
        jti=claims.jti,
        defaults={
            "user": user,
            "used_at": timezone.now(),
            "expires_at": datetime.datetime.fromtimestamp(claims.expires_at, datetime.UTC),
            "ended": ended,
        },
    )


# --- Users ---------------------------------------------------------------------------------------------------------
def create_user(username: str, password: str, staff: bool = False) -> User:
    """
    A new user.

    Raises:
        ValidationError: If the name is not allowed.
        IntegrityError: If it is taken.
    """
    user = User(username=username, is_staff=staff)
    user.set_password(password)
    user.save(force_insert=True)
    return user


def disable_users(users: QuerySet[User]) -> int:
    """Close these users out: no login, no socket, nothing removed. Gives how many were not disabled before."""
    return users.filter(is_active=True).update(is_active=False)


def has_data(user: User) -> bool:
    """Whether the user has rows beyond the account: conversations, files. To delete those takes more than one step."""
    rows = (
        relation.related_model._base_manager.filter(**{relation.field.name: user})
        for relation in User._meta.get_fields(include_hidden=True)
        if (relation.one_to_many or relation.one_to_one)
        and relation.auto_created
        and relation.related_model._meta.app_label not in ("accounts", "admin")
    )
    return any(found.exists() for found in rows)


# --- Keys ----------------------------------------------------------------------------------------------------------
def create_key(
    user: User,
    *,
    agent: str = DEFAULT_AGENT,
    scope_names: tuple[str, ...] = scopes.DEFAULT,
    label: str = "",
    expires_at: datetime.datetime | None = None,
    created_by: User | None = None,
) -> tuple[ApiKey, str]:
    """
    A new key and its text, which is known only to the caller from now on.

    Raises:
        ValidationError: If the agent's name is not allowed.
    """
    validate_agent_name(agent)
    key = ApiKey(user=user, agent=agent, label=label, scopes=scopes.join(scope_names), expires_at=expires_at)
    return key, issue(key, created_by)


def issue(key: ApiKey, created_by: User | None, form: uuid.UUID | None = None) -> str:
    """
    Store a key that was filled in, and give its text, once.

    Raises:
        IntegrityError: If this form has issued a key already.
    """
    key.created_by = created_by
    key.issue = form
    for last in [False] * (PREFIX_TRIES - 1) + [True]:
        new = keys.generate()
        key.prefix, key.digest = new.prefix, new.digest
        try:
            with transaction.atomic():
                key.save(force_insert=True)
            return new.text
        except IntegrityError:
            if last or not ApiKey.objects.filter(prefix=new.prefix).exists():
                raise
    raise AssertionError("the last try returns or raises")


def revoke_key(key: ApiKey) -> bool:
    """End a key for good; its sockets are closed by each process' look at its live credentials. False: it had ended."""
    return bool(ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now()))
