"""Media in the admin: read-only. The bytes are never shown in a page, only handed out to be saved."""

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from media.api import attachment
from media.models import Media, MediaGrant

READ_CONTENT = "chat.read_content"


class ReadOnly:
    """Nothing is added, changed or deleted here."""

    def has_add_permission(self, request: HttpRequest, obj: Media | None = None) -> bool:
        """Files come by upload."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Media | None = None) -> bool:
        """What is known of a file comes from its bytes."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Media | None = None) -> bool:
        """Messages point to files."""
        return False


class GrantInline(ReadOnly, admin.TabularInline):
    """The agents that were sent this file."""

    model = MediaGrant
    fields = ["agent", "created_at"]
    readonly_fields = fields


@admin.register(Media)
class MediaAdmin(ReadOnly, admin.ModelAdmin):
    """Find a file, see what is known of it, save its bytes if allowed."""

    list_display = ["public_id", "name", "kind", "type", "readable_size", "owner", "agent", "created_at"]
    list_filter = ["kind", "created_at"]
    list_select_related = ["owner"]
    search_fields = ["public_id", "name", "sha256", "owner__username"]
    search_help_text = "Id, name, SHA-256 or username."
    date_hierarchy = "created_at"
    ordering = ["-created_at", "-pk"]
    show_full_result_count = False
    fields = [
        "public_id",
        "owner",
        "agent",
        "name",
        "kind",
        "type",
        "readable_size",
        "width",
        "height",
        "duration",
        "sha256",
        "created_at",
    ]
    readonly_fields = ["readable_size"]
    inlines = [GrantInline]

    def get_fields(self, request: HttpRequest, obj: Media | None = None) -> list[str]:
        """With the link to the bytes for those who may read what people send."""
        return [*self.fields, "content"] if request.user.has_perm(READ_CONTENT) else self.fields

    def get_readonly_fields(self, request: HttpRequest, obj: Media | None = None) -> list[str]:
        """The link is made here, so the form must know it as read-only."""
        return [*self.readonly_fields, "content"]

    def get_urls(self) -> list[URLPattern]:
        """One address more: the bytes."""
        bytes_view = self.admin_site.admin_view(self.save_content)
        return [path("<int:pk>/content", bytes_view, name="media_media_content"), *super().get_urls()]

    def save_content(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        """Hand out the bytes of a file to be saved."""
        if not (request.user.has_perm(READ_CONTENT) and self.has_view_permission(request)):
            raise PermissionDenied
        return attachment(get_object_or_404(Media, pk=pk))

    @admin.display(description="size", ordering="size")
    def readable_size(self, media: Media) -> str:
        """In the largest fitting unit."""
        return filesizeformat(media.size)

    @admin.display(description="content")
    def content(self, media: Media) -> str:
        """The link to save the bytes by."""
        return format_html(
            '<a href="{}">Save the file</a>', reverse("admin:media_media_content", args=[media.pk])
        )
