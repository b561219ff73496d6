"""
Wrong passwords slow down: per account and per address, in the database, so that every process counts alike.

Each subject has a small stock of tries; one more is forgiven every HERMES_LOGIN_REFILL_SECONDS. A try is taken before the
password is looked at, so a hundred at once are no better than one after the other. Nobody is ever locked out: the wait is
one refill at most.
"""

import datetime
import hashlib
import ipaddress
from collections.abc import Collection

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from accounts.models import LoginTries
from hermes_site.errors import RateLimited

FORGET_ROWS = 100  # a login pays for no more than this


def of_account(username: str) -> str:
    """The subject of an account, whether it exists or not."""
    return "a:" + hashlib.sha256(username.encode("utf-8", "replace")).hexdigest()


def of_address(address: str) -> str:
    """The subject of an address; one household's IPv6 addresses are one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "i:" + hashlib.sha256(address.encode("utf-8", "replace")).hexdigest()
    if parsed.version == 6:
        parsed = (
            getattr(parsed, "ipv4_mapped", None) or ipaddress.ip_network((int(parsed), 64), strict=False)[0]
        )
    return "i:" + hashlib.sha256(str(parsed).encode()).hexdigest()


def take(username: str, address: str) -> None:
    """
    Use up one try of the account and of the address.

    Raises:
        RateLimited: If either has none left; `retry_after` is when it has. Nothing is used up then.
    """
    limits = {of_account(username): settings.HERMES_LOGIN_TRIES}
    if address:
        limits[of_address(address)] = settings.HERMES_LOGIN_ADDRESS_TRIES
    refill = datetime.timedelta(seconds=settings.HERMES_LOGIN_REFILL_SECONDS)
    with transaction.atomic():
        now = timezone.now()
        _forget(now, limits)
        LoginTries.objects.bulk_create(
            [LoginTries(subject=subject, forgiven_at=now) for subject in sorted(limits)],
            ignore_conflicts=True,
        )
        rows = list(LoginTries.objects.select_for_update().filter(subject__in=limits).order_by("subject"))
        wait = datetime.timedelta(0)
        for row in rows:
            row.forgiven_at = max(row.forgiven_at, now) + refill
            wait = max(wait, row.forgiven_at - now - refill * limits[row.subject])
        if wait > datetime.timedelta(0):
            raise RateLimited("too many tries to log in", retry_after=wait.total_seconds())
        for row in rows:
            row.save(update_fields=["forgiven_at"])


def give_back(username: str, address: str) -> None:
    """The password was right: the account starts anew, the address gets back the one try it used."""
    refill = datetime.timedelta(seconds=settings.HERMES_LOGIN_REFILL_SECONDS)
    with transaction.atomic():
        LoginTries.objects.filter(subject=of_account(username)).delete()
        row = LoginTries.objects.select_for_update().filter(subject=of_address(address)).first()
        if row is not None:
            row.forgiven_at -= refill
            row.save(update_fields=["forgiven_at"])


def _forget(now: datetime.datetime, keep: Collection[str]) -> None:
    """Remove some rows that no longer say anything; those that another login holds are left to it."""
    stale = (
        LoginTries.objects.select_for_update(skip_locked=True)
        .filter(forgiven_at__lt=now)
        .exclude(subject__in=keep)
    )
    LoginTries.objects.filter(pk__in=[row.pk for row in stale[:FORGET_ROWS]]).delete()
