"""Users and keys in the admin. It changes nothing itself: every change is a call of accounts.services."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from accounts import services
from accounts.forms import KeyForm, LoginForm, UserAddForm, UserChangeForm
from accounts.models import ApiKey, User

admin.site.login_form = LoginForm
admin.site.site_header = "Hermes Chat"
admin.site.site_title = "Hermes Chat"


@admin.register(User)
class UserAdmin(DjangoUserAdmin):
    """Users, found by name; the name is fixed once the user exists."""

    form = UserChangeForm
    add_form = UserAddForm
    list_display = ("username", "is_active", "is_staff", "last_login", "date_joined")
    list_filter = ("is_active", "is_staff", "is_superuser")
    search_fields = ("username",)
    search_help_text = "Username"
    actions = ["disable_users", "log_out_everywhere"]
    readonly_fields = ("last_login", "date_joined")

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        """The username can be typed only while the user is made."""
        fields = tuple(super().get_readonly_fields(request, obj))
        return (*fields, "username") if obj is not None else fields

    def get_deleted_objects(self, objs: Iterable[User], request: HttpRequest) -> tuple[Any, Any, Any, Any]:
        """Who has data is disabled, not deleted: to look through all of it first could take the server down."""
        kept = [
            f"conversations or files of {user}: disable the user instead"
            for user in objs
            if services.has_data(user)
        ]
        return ([], {}, set(), kept) if kept else super().get_deleted_objects(objs, request)

    @admin.action(description="Disable selected users", permissions=["change"])
    def disable_users(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """Disabled users cannot log in, and their sockets are closed; their data stay."""
        done = services.disable_users(queryset)
        self.message_user(request, f"{done} disabled.", messages.SUCCESS)

    @admin.action(description="Log selected users out everywhere", permissions=["change"])
    def log_out_everywhere(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """Their tokens and login sessions end; API keys go on."""
        for user in queryset:
            services.log_out_everywhere(user)
        self.message_user(request, "Logged out.", messages.SUCCESS)


@admin.register(ApiKey)
class ApiKeyAdmin(admin.ModelAdmin):
    """Keys: issued here and shown once, in the answer to the form that issued them, and nowhere else."""

    form = KeyForm
    autocomplete_fields = ("user",)
    list_display = (
        "prefix",
        "user",
        "agent",
        "label",
        "scopes",
        "state",
        "created_at",
        "expires_at",
        "last_used_at",
    )
    list_filter = (("revoked_at", admin.EmptyFieldListFilter), "agent")
    list_select_related = ("user",)
    search_fields = ("prefix", "user__username", "label")
    search_help_text = "Prefix, username or label"
    actions = ["revoke_keys"]
    facts = (
        "user",
        "agent",
        "scopes",
        "prefix",
        "state",
        "created_at",
        "created_by",
        "expires_at",
        "last_used_at",
    )

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        """The form of a new key, or the facts of one."""
        if obj is None:
            return ("user", "agent", "label", "scopes", "expires_at", "form_id")
        return ("label", *self.facts)

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        """Of an issued key only the label can change."""
        return self.facts if obj is not None else ()

    @admin.display(description="State")
    def state(self, key: ApiKey) -> str:
        """Whether it still opens anything."""
        if key.revoked_at is not None:
            return "revoked"
        if key.expires_at is not None and key.expires_at <= timezone.now():
            return "expired"
        return "good"

    def save_model(self, request: HttpRequest, obj: ApiKey, form: KeyForm, change: bool) -> None:
        """Issue a new key; its text lives on this request alone."""
        if change:
            super().save_model(request, obj, form, change)
            return
        form_id = form.cleaned_data.get("form_id")
        request.issued_key = services.issue(obj, request.user, form_id)  # type: ignore[attr-defined]

    def response_add(
        self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Show the key: in this answer, which nobody may keep."""
        context = {
            **self.admin_site.each_context(request),
            "title": "API key issued",
            "opts": self.opts,
            "key": obj,
            "text": request.issued_key,  # type: ignore[attr-defined]
        }
        answer = TemplateResponse(request, "admin/accounts/apikey/issued.html", context)
        answer["Cache-Control"] = "no-store"
        return answer

    @admin.action(description="Revoke selected keys for good", permissions=["change"])
    def revoke_keys(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Their sockets are closed within seconds."""
        ended = [key for key in queryset if services.revoke_key(key)]
        for key in ended:
            self.log_change(request, key, "Revoked.")
        self.message_user(request, f"{len(ended)} revoked.", messages.SUCCESS)
