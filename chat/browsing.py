"""How the admin looks through tables of any size: bounded lists, exact searches, nothing that changes a row."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.core.paginator import Page, Paginator
from django.db.models import Func, IntegerField, Model, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from accounts.models import User
from chat import keys, traffic
from chat.models import Message

READ_CONTENT = "chat.read_content"
BROWSED_ROWS = 10_000  # that a list counts and pages through
SAME_ID_ROWS = 1_000  # of one client-chosen id that a search looks at


class Bytes(Func):
    """The size of a text in bytes, without reading it where the database can do so."""

    function = "OCTET_LENGTH"
    output_field = IntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """SQLite has this function only since 3.43."""
        return self.as_sql(compiler, connection, template="LENGTH(CAST(%(expressions)s AS BLOB))", **context)


class BoundedPaginator(Paginator):
    """Pages through the first rows only, so that no list counts a whole table."""

    @cached_property
    def count(self) -> int:
        """How many rows there are, at most the bound."""
        return int(self.object_list.order_by().values("pk")[:BROWSED_ROWS].count())

    @property
    def at_bound(self) -> bool:
        """Whether there may be more than are paged through."""
        return self.count >= BROWSED_ROWS

    def _get_page(self, rows: QuerySet[Any], *position: Any) -> Page:
        """One page: its keys are sorted out first, so that no text is read of rows that are not on it."""
        on_it = list(rows.values_list("pk", flat=True))
        return super()._get_page(self.object_list.filter(pk__in=on_it), *position)


class ChoiceFilter(admin.SimpleListFilter):
    """A filter with fixed choices: nothing is read to offer them."""

    choices_offered: dict[str, tuple[str, Q]] = {}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The choices."""
        return [(value, label) for value, (label, _) in self.choices_offered.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """An unknown choice is none."""
        chosen = self.choices_offered.get(self.value() or "")
        return queryset.filter(chosen[1]) if chosen else queryset


def choice_filter(name: str, choices: dict[str, tuple[str, Q]]) -> type[ChoiceFilter]:
    """A filter of this name."""
    return type(
        f"{name.title()}Filter",
        (ChoiceFilter,),
        {"title": name, "parameter_name": name, "choices_offered": choices},
    )


class CreatedFilter(admin.SimpleListFilter):
    """How long ago a row was made. Keys rise with time, roughly: the primary key's index bounds the search."""

    title = parameter_name = "created"
    hours = {"1": "Past hour", "24": "Past 24 hours", "168": "Past 7 days", "720": "Past 30 days"}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The times."""
        return list(self.hours.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """An unknown time is none."""
        if self.value() not in self.hours:
            return queryset
        since = timezone.now() - timedelta(hours=int(self.value() or 0))
        return queryset.filter(created_at__gte=since, pk__gte=keys.lowest_since(since.timestamp()))


class ReadOnlyAdmin(admin.ModelAdmin):
    """
    Lists and pages of rows that nobody adds, changes or deletes here.

    `content` names what only `chat.read_content` shows, and what others see in its place.
    """

    content: dict[str, str] = {}
    links: frozenset[str] = frozenset()  # lookups that links of ours use in an address
    list_display: Any = ()
    list_select_related: Any = ("user",)
    list_per_page = 100
    ordering: Any = ("-pk",)
    ordering_within: Any = ("-pk",)  # in the rows of one user or session, by the index of those
    paginator = BoundedPaginator
    search_fields: Any = ("public_id",)  # shows the search box; `get_search_results` does the search
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    sortable_by: Any = ()  # most columns have no index of their own

    class Media:
        """Texts of traffic keep their lines."""

        css = {"all": ["chat/admin.css"]}

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Rows are written by the journal."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """What was said was said."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Sessions are deleted by their users, journals by `purge`."""
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Only our own filters and links: others could ask, letter by letter, for a text that is not shown."""
        return lookup in self.links or lookup in {
            getattr(offered, "parameter_name", "") for offered in self.list_filter
        }

    def get_ordering(self, request: HttpRequest) -> Any:
        """The newest first."""
        return self.ordering_within if "session__id__exact" in request.GET else self.ordering

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """The columns that this person may read."""
        return self._readable(request, self.list_display)

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        """The fields that this person may read."""
        return self._readable(request, self.fields or ())

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        """All of them."""
        return self.get_fields(request, obj)

    def _readable(self, request: HttpRequest, names: Any) -> list[str]:
        if request.user.has_perm(READ_CONTENT):
            return list(names)
        return list(dict.fromkeys(self.content.get(name, name) for name in names))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Rows that have the whole term as a name or an id, or a user's name and an id with a space between."""
        term = search_term.strip()
        if not term:
            return queryset, False
        owner = User.objects.filter(username=term).first()
        found = any_of(self.matching(term, User.objects.all()))
        if owner is not None and not found:
            return queryset.filter(user=owner).order_by(*self.ordering_within), False
        if owner is not None:
            found |= Q(user=owner)
        username, _, word = term.rpartition(" ")
        if (owner := User.objects.filter(username=username).first()) is not None:
            narrowed = any_of(self.matching(word, User.objects.filter(pk=owner.pk)))
            found |= narrowed & Q(user=owner) if narrowed else narrowed
        return queryset.filter(found) if found else queryset.none(), False

    def matching(self, term: str, users: QuerySet[User]) -> dict[str, Any]:
        """Conditions, any of which gives rows of these users with this id; empty ones give none."""
        return {"pk__in": keys_named(self.model, term, users)}

    @admin.display(description="id")
    def short_id(self, row: Any) -> str:
        """As much of a client's id as a list has room for."""
        return traffic.one_line(row.public_id, traffic.ID_CHARACTERS) or "-"

    @admin.display(description="session")
    def short_session(self, row: Any) -> str:
        """The same of its session."""
        return traffic.one_line(row.session.public_id, traffic.ID_CHARACTERS)


def any_of(conditions: dict[str, Any]) -> Q:
    """One of these conditions; an empty `Q` where none can be met."""
    return Q(*((name, value) for name, value in conditions.items() if value), _connector=Q.OR)


def keys_named(model: type[Any], public_id: str, users: QuerySet[User]) -> list[int]:
    """Keys of the rows with this id: one look into the index of ids for each user, the table is not read."""
    rows = model.objects.filter(user__in=users.order_by().values("pk"), public_id=public_id)
    if model is Message:
        rows = rows.filter(side__in=("app", "agent"))  # the column between the two in that index
    return list(rows.values_list("pk", flat=True)[:SAME_ID_ROWS])


def lists_of(row: Model, field: str, **models: type[Model]) -> SafeString:
    """Links to the lists of what belongs to a row."""
    return format_html_join(
        " · ",
        '<a href="{}?{}={}">{}</a>',
        (
            (reverse(f"admin:chat_{model._meta.model_name}_changelist"), f"{field}__id__exact", row.pk, label)
            for label, model in models.items()
        ),
    )
