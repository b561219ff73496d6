"""Conversations in the admin: found, looked at, never changed. What people say needs `chat.read_content`."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Substr
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils import timezone
from django.utils.safestring import SafeString

from accounts.models import User
from chat import queries, traffic
from chat.browsing import (
    READ_CONTENT,
    Bytes,
    CreatedFilter,
    ReadOnlyAdmin,
    choice_filter,
    keys_named,
    lists_of,
)
from chat.models import AgentSlot, ChatSession, Connection, Message, Process, Run


@admin.register(ChatSession)
class ChatSessionAdmin(ReadOnlyAdmin):
    """Conversations. A deleted one stays as a tombstone."""

    ordering_within = ("-active_at",)
    content = {"title": "title_size", "short_title": "title_size"}
    list_display = (
        *("short_id", "user", "short_title", "agent", "runs"),
        *("active_at", "created_at", "deleted_at"),
    )
    list_filter = (
        choice_filter(
            "state",
            {
                "open": ("Open", Q(deleted_at=None, archived=False)),
                "pinned": ("Pinned", Q(deleted_at=None, pinned=True)),
                "archived": ("Archived", Q(deleted_at=None, archived=True)),
                "deleted": ("Deleted", Q(deleted_at__isnull=False)),
            },
        ),
        CreatedFilter,
    )
    search_help_text = "Exact username or session id, or both with a space between."
    fields = (
        *("public_id", "user", "agent", "title", "belongings", "runs", "pinned", "archived"),
        *("created_at", "active_at", "deleted_at"),
    )

    @admin.display(description="title")
    def short_title(self, session: ChatSession) -> str:
        """As much of it as a list has room for."""
        return traffic.one_line(session.title or "-")

    @admin.display(description="title")
    def title_size(self, session: ChatSession) -> str:
        """For those who may not read it."""
        return f"{len(session.title)} characters" if session.title else "-"

    @admin.display(description="what was said")
    def belongings(self, session: ChatSession) -> SafeString:
        """Links to its messages and runs."""
        return lists_of(session, "session", Messages=Message, Runs=Run)


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    """What people and agents said."""

    ordering_within = ("-cursor",)
    content = {"preview": "size", "text": "size", "rest": "size"}
    links = frozenset({"session__id__exact", "run__id__exact"})
    list_display = (
        *("short_id", "user", "short_session", "side", "type", "preview", "agent", "said_at", "cursor"),
        "created_at",
    )
    list_select_related = ("user", "session")
    list_filter = (
        choice_filter("side", {"app": ("App", Q(side="app")), "agent": ("Agent", Q(side="agent"))}),
        choice_filter(
            "type", {name: (name, Q(type=name)) for name in ("text", "image", "voice", "video", "file")}
        ),
        choice_filter(
            "state",
            {
                "open": ("Open stream", Q(cursor=None)),
                "finished": ("Finished", Q(cursor__isnull=False, replaced_by=None)),
                "replaced": ("Replaced", Q(replaced_by__isnull=False)),
            },
        ),
        CreatedFilter,
    )
    search_help_text = "Exact username, message id, session id or run id; or a username and an id."
    fields = (
        *("public_id", "user", "session", "run", "side", "type", "agent", "reply_to", "said_at"),
        *("text", "rest", "cursor", "created_at", "replace_from", "replaced_by"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        """The start of each text and its size: the whole is read on its own page only."""
        start = Substr("data", 1, traffic.START_CHARACTERS)
        return super().get_queryset(request).defer("data").annotate(start=start, bytes=Bytes(F("data")))

    def matching(self, term: str, users: QuerySet[User]) -> dict[str, Any]:
        """By its own id, or that of its session or run."""
        return super().matching(term, users) | {
            "session__in": keys_named(ChatSession, term, users),
            "run__in": keys_named(Run, term, users),
        }

    @admin.display(description="text")
    def preview(self, message: Any) -> str:
        """The first line's worth."""
        return traffic.one_line(traffic.text_at_start(message.start)) or "-"

    @admin.display(description="size")
    def size(self, message: Any) -> str:
        """Of all that it says."""
        return filesizeformat(message.bytes)

    @admin.display(description="sender's time")
    def said_at(self, message: Message) -> str:
        """As the sender said, which may be nonsense."""
        return traffic.moment(message.ts)

    @admin.display(description="text")
    def text(self, message: Message) -> SafeString:
        """As it was written."""
        return traffic.block(traffic.bounded(traffic.split_text(message.data)[0] or "-"))

    @admin.display(description="other data")
    def rest(self, message: Message) -> SafeString:
        """What else came with it."""
        return traffic.block(traffic.bounded(traffic.split_text(message.data)[1] or "-"))


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Turns of agents, each with its events."""

    change_form_template = "admin/chat/run/change_form.html"
    content = {"history": "history_size"}
    links = frozenset({"session__id__exact"})
    list_display = (
        *("short_id", "user", "short_session", "status", "code", "agent", "ordinal", "last_seq"),
        *("created_at", "delivered_at", "ended_at"),
    )
    list_select_related = ("user", "session")
    list_filter = (
        choice_filter(
            "status",
            {value: (label, Q(status=value)) for value, label in Run._meta.get_field("status").choices},
        ),
        CreatedFilter,
    )
    search_help_text = "Exact username, run id or session id; or a username and an id."
    fields = (
        *("public_id", "user", "session", "agent", "ordinal", "status", "code", "belongings"),
        *("user_message", "client_run_id", "owner", "epoch", "last_seq", "created_at", "delivered_at"),
        *("ended_at", "replaced_by", "history"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        """Without the history rows, which are read on the run's own page only."""
        return super().get_queryset(request).defer("transcript").annotate(bytes=Bytes(F("transcript")))

    def matching(self, term: str, users: QuerySet[User]) -> dict[str, Any]:
        """By its own id or its session's."""
        return super().matching(term, users) | {"session__in": keys_named(ChatSession, term, users)}

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], **options: Any
    ) -> HttpResponse:
        """With a page of events: from the number in the address on, or that one alone."""
        run: Run = options["obj"]
        alone = number(request.GET.get("event"))
        after = alone - 1 if alone else number(request.GET.get("after"))
        lines = traffic.events_after(run.pk, after, 1 if alone else traffic.EVENTS)
        last = max(run.last_seq, queries.last_seq(run.pk))
        context |= {
            "events": lines,
            "last_event": last,
            "may_read": request.user.has_perm(READ_CONTENT),
            "all_events": bool(alone),
            "earlier": max(0, after - traffic.EVENTS) if after and not alone else None,
            "later": lines[-1].number if lines and not alone and lines[-1].number < last else None,
        }
        return super().render_change_form(request, context, **options)

    @admin.display(description="what was said")
    def belongings(self, run: Run) -> SafeString:
        """A link to its messages."""
        return lists_of(run, "run", Messages=Message)

    @admin.display(description="history rows")
    def history(self, run: Run) -> SafeString:
        """What pages of history show of it once it has ended."""
        return traffic.block(traffic.bounded(traffic.pretty(run.transcript) or "-"))

    @admin.display(description="history rows")
    def history_size(self, run: Any) -> str:
        """For those who may not read them."""
        return filesizeformat(run.bytes)


def number(text: str | None) -> int:
    """An event's number in an address; 0 for anything else."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else 0


def host_of(process: str) -> Subquery:
    """The host of a row's process."""
    return Subquery(Process.objects.filter(uuid=OuterRef(process)).values("host")[:1])


class SeatAdmin(ReadOnlyAdmin):
    """Rows that a process holds."""

    agent_field = "agent"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With the host of that process."""
        return super().get_queryset(request).annotate(host=host_of("process"))

    def matching(self, term: str, users: QuerySet[User]) -> dict[str, Any]:
        """By the agent's name."""
        return {self.agent_field: term}

    @admin.display(description="process")
    def held_by(self, row: Any) -> str:
        """Its host, and the start of its id."""
        return f"{row.host or 'gone'} {str(row.process)[:8]}" if row.process else "-"

    @admin.display(description="capabilities")
    def shown_caps(self, row: Any) -> str:
        """What the peer asked for beyond v3."""
        return row.caps.replace(",", ", ") or "-"


@admin.register(Connection)
class ConnectionAdmin(SeatAdmin):
    """Sockets that are open now."""

    list_display = (
        *("connected_at", "user", "side", "agent", "shown_caps", "address", "short_user_agent", "held_by"),
    )
    list_filter = (
        choice_filter("side", {"app": ("App", Q(side="app")), "agent": ("Agent", Q(side="agent"))}),
    )
    search_help_text = "Exact username or agent name."
    fields = ("user", "side", "agent", "shown_caps", "address", "user_agent", "held_by", "connected_at")

    @admin.display(description="user agent")
    def short_user_agent(self, connection: Connection) -> str:
        """As much of it as a list has room for."""
        return traffic.one_line(connection.user_agent, 60) or "-"


@admin.register(AgentSlot)
class AgentSlotAdmin(SeatAdmin):
    """The agents of each user, connected or not."""

    agent_field = "name"
    list_display = (
        *("name", "user", "connected", "generation", "shown_caps", "held_by", "connected_at", "gone_at"),
    )
    list_filter = (
        choice_filter("connected", {"yes": ("Yes", Q(process__isnull=False)), "no": ("No", Q(process=None))}),
    )
    search_help_text = "Exact username or agent name."
    fields = (
        *("name", "user", "connected", "generation", "shown_caps", "held_by", "connected_at", "gone_at"),
        "taken_over",
    )

    @admin.display(description="connected", boolean=True)
    def connected(self, slot: AgentSlot) -> bool:
        """Whether a process holds its socket."""
        return slot.process is not None

    @admin.display(description="taken over")
    def taken_over(self, slot: AgentSlot) -> str:
        """The latest times that a connection was replaced by a newer one."""
        return "\n".join(traffic.moment(seconds) for seconds in json.loads(slot.takeovers)) or "-"


@admin.register(Process)
class ProcessAdmin(ReadOnlyAdmin):
    """Gateway processes."""

    list_display = ("short_uuid", "host", "alive", "sockets", "agents", "commits", "started_at", "lease")
    list_select_related = False
    ordering = ("-started_at",)
    search_fields = ("host",)
    search_help_text = "Host."
    fields = ("uuid", "host", "alive", "sockets", "agents", "commits", "started_at", "lease")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Process]:
        """With what each holds."""
        return (
            super().get_queryset(request).annotate(held_sockets=held(Connection), held_agents=held(AgentSlot))
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Process], search_term: str
    ) -> tuple[QuerySet[Process], bool]:
        """By a part of the host's name: there are few."""
        return queryset.filter(host__icontains=search_term.strip()), False

    @admin.display(description="process")
    def short_uuid(self, process: Process) -> str:
        """The start of its id."""
        return str(process.uuid)[:8]

    @admin.display(description="alive", boolean=True)
    def alive(self, process: Process) -> bool:
        """Whether its lease has not run out."""
        return process.lease > timezone.now()

    @admin.display(description="sockets")
    def sockets(self, process: Any) -> int:
        """That are open."""
        return int(process.held_sockets)

    @admin.display(description="agents")
    def agents(self, process: Any) -> int:
        """That are connected."""
        return int(process.held_agents)


def held(model: type[Any]) -> Coalesce:
    """How many rows of a model a process holds."""
    rows = model.objects.filter(process=OuterRef("uuid")).order_by().values("process")
    return Coalesce(Subquery(rows.annotate(rows=Count("pk")).values("rows")), 0)
