"""Conversations in the admin: what can be found there, what needs a permission, and that nothing can be changed."""

import json
import re
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from accounts import services
from accounts.models import User
from chat import browsing, events
from chat.models import AgentSlot, ChatSession, Connection, JournalRow, Message, Process, Run

PASSWORD = "correct horse battery"
SECRET = "nobodys-business"
MODELS = (ChatSession, Message, Run, Connection, AgentSlot, Process)
VIEW = [f"view_{model._meta.model_name}" for model in MODELS]


@pytest.fixture
def alice(db: None) -> User:
    """A user."""
    return services.create_user("alice", PASSWORD)


@pytest.fixture
def bob(db: None) -> User:
    """Another one."""
    return services.create_user("bob", PASSWORD)


def staff(name: str, *codenames: str, superuser: bool = False) -> Client:
    """A member of staff with these permissions, logged in."""
    user = services.create_user(name, PASSWORD, staff=True)
    user.is_superuser = superuser
    user.save()
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def viewer(db: None) -> Client:
    """May see every list and page, and not what people say."""
    return staff("viewer", *VIEW)


@pytest.fixture
def reader(db: None) -> Client:
    """May read what people say as well."""
    return staff("reader", *VIEW, "read_content")


def session_of(user: User, public_id: str = "default", **fields: Any) -> ChatSession:
    """A conversation."""
    now = timezone.now()
    fields = {"agent": "hermes", "created_at": now, "active_at": now} | fields
    return ChatSession.objects.create(user=user, public_id=public_id, **fields)


def run_of(session: ChatSession, ordinal: int = 1, **fields: Any) -> Run:
    """A turn in it."""
    fields = {
        "public_id": f"run_{uuid.uuid4().hex}",
        "status": "completed",
        "created_at": timezone.now(),
    } | fields
    return Run.objects.create(user=session.user, session=session, agent="hermes", ordinal=ordinal, **fields)


def message_of(run: Run, data: Any = None, **fields: Any) -> Message:
    """Something said in it."""
    stored = data if isinstance(data, str) else json.dumps(data or {"text": "hello"})
    fields = {
        "public_id": str(uuid.uuid4()),
        "side": "app",
        "type": "text",
        "ts": 1719123456,
        "created_at": timezone.now(),
    } | fields
    return Message.objects.create(
        user=run.user, session=run.session, run=run, agent="hermes", data=stored, **fields
    )


def journal(run: Run, made: list[dict[str, Any]], rows: int = 3) -> None:
    """Events of it, numbered from 1, a few in a row."""
    numbered = [{"seq": number, "ts": 1764525600.5, **event} for number, event in enumerate(made, 1)]
    for start in range(0, len(numbered), rows):
        part = numbered[start : start + rows]
        JournalRow.objects.create(
            run=run, first_seq=part[0]["seq"], last_seq=part[-1]["seq"], events=events.dump(part)
        )
    Run.objects.filter(pk=run.pk).update(last_seq=len(made))


def listed(client: Client, model: Any, **query: Any) -> str:
    """The list of a model."""
    page = client.get(reverse(f"admin:chat_{model._meta.model_name}_changelist"), query)
    assert page.status_code == 200, page
    return page.content.decode()


def shown(client: Client, row: Any, **query: Any) -> str:
    """The page of a row."""
    page = client.get(reverse(f"admin:chat_{row._meta.model_name}_change", args=[row.pk]), query)
    assert page.status_code == 200, page
    return page.content.decode()


def links(page: str) -> list[int]:
    """The keys of the rows on a list, in order."""
    return [int(key) for key in re.findall(r'<a href="/admin/chat/\w+/(\d+)/change/', page)]


def one_of_each(user: User) -> list[Any]:
    """A row of every model, with the secret wherever people write."""
    process = Process.objects.create(
        uuid=uuid.uuid4(),
        host="gateway-one",
        started_at=timezone.now(),
        lease=timezone.now() + timedelta(minutes=1),
    )
    session = session_of(user, title=SECRET)
    run = run_of(session, transcript=json.dumps([{"role": "assistant", "content": SECRET}]))
    journal(run, [{"event": "assistant.delta", "delta": SECRET}, {"event": "run.completed"}])
    run.refresh_from_db()
    data = {"text": SECRET, "media": {"id": "med_1", "name": f"{SECRET}.png"}, "more": SECRET}
    message = message_of(run, data, cursor=1)
    socket = Connection.objects.create(
        user=user, side="app", process=process.uuid, connected_at=timezone.now(), user_agent="Browser/1"
    )
    slot = AgentSlot.objects.create(
        user=user, name="hermes", process=process.uuid, generation=7, connected_at=timezone.now()
    )
    return [session, message, run, socket, slot, process]


def test_nothing_is_added_changed_or_deleted(alice: User) -> None:
    """Not even by a superuser, on any page or by any action."""
    client = staff("operator", superuser=True)
    for row in one_of_each(alice):
        base = f"/admin/chat/{row._meta.model_name}/"
        assert client.get(f"{base}add/").status_code == 403
        assert client.post(f"{base}add/", {}).status_code == 403
        assert client.post(f"{base}{row.pk}/change/", {"title": "x", "agent": "x"}).status_code == 403
        assert client.post(f"{base}{row.pk}/delete/", {"post": "yes"}).status_code == 403
        client.post(base, {"action": "delete_selected", "_selected_action": row.pk, "post": "yes"})
        client.post(base, {"form-TOTAL_FORMS": 1, "form-INITIAL_FORMS": 1, "_save": "Save"})
        before = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
        row.refresh_from_db()
        assert {name: getattr(row, name) for name in before} == before
        page = listed(client, type(row)) + shown(client, row)
        for offer in ("delete_selected", 'name="_save"', f"{base}add/", "/delete/"):
            assert offer not in page


def test_the_admin_is_for_staff_with_the_permission(alice: User) -> None:
    """Strangers are sent to log in, staff without the permission is refused."""
    rows = one_of_each(alice)
    nobody = staff("nobody")
    for row in rows:
        for url in (
            f"/admin/chat/{row._meta.model_name}/",
            f"/admin/chat/{row._meta.model_name}/{row.pk}/change/",
        ):
            assert Client().get(url).status_code == 302
            assert nobody.get(url).status_code == 403


def test_what_people_say_needs_its_own_permission(alice: User, viewer: Client, reader: Client) -> None:
    """Texts, titles, file names, other data, histories and payloads; others see how long they are."""
    for row in one_of_each(alice):
        has_content = isinstance(row, ChatSession | Message | Run)
        pages = listed(viewer, type(row)), shown(viewer, row), shown(viewer, row, event=1)
        assert all(SECRET not in page for page in pages)
        assert (SECRET in listed(reader, type(row)) + shown(reader, row)) is has_content
    session, message, run = ChatSession.objects.get(), Message.objects.get(), Run.objects.get()
    assert f"{len(SECRET)} characters" in listed(viewer, ChatSession)
    assert f"{len(message.data)}\xa0bytes" in listed(viewer, Message)
    assert f"{len(run.transcript)}\xa0bytes" in shown(viewer, run)
    assert shown(reader, message).count(SECRET) == 3
    assert shown(reader, session).count(SECRET) == 1


@pytest.mark.parametrize(
    ("model", "lookup"),
    [
        (Message, "data__contains"),
        (Message, "data__startswith"),
        (Run, "transcript__contains"),
        (ChatSession, "title__startswith"),
        (Message, "user__password__startswith"),
        (Message, "session__title__startswith"),
        (Run, "journal__events__contains"),
    ],
)
def test_a_text_cannot_be_guessed_by_filters(alice: User, viewer: Client, model: Any, lookup: str) -> None:
    """Django would take any field of the model as a filter, and so answer questions about its text."""
    one_of_each(alice)
    url = reverse(f"admin:chat_{model._meta.model_name}_changelist")
    assert viewer.get(url, {lookup: SECRET[:3]}).status_code == 400


@pytest.mark.parametrize("ts", [0, 1719123456, 1719123456789, 253402300799, 253402300800, 2**53, 2**63 - 1])
def test_c20_any_time_is_shown(alice: User, reader: Client, settings: Any, ts: int) -> None:
    """C20: in list and page, also in a zone that pushes it over the end of the calendar."""
    message = message_of(run_of(session_of(alice)), ts=ts)
    for zone in ("UTC", "Pacific/Kiritimati", "America/Los_Angeles"):
        settings.TIME_ZONE = zone
        listed(reader, Message)
        shown(reader, message)


@pytest.mark.parametrize(
    "payload",
    [
        "<script>mark(1)</script>",
        '"><img src=x onerror=mark(2)>',
        "</pre></textarea><svg onload=mark(3)>",
    ],
)
def test_c60_markup_is_text(alice: User, reader: Client, payload: str) -> None:
    """C60: wherever a client may write."""
    session = session_of(alice, payload, title=payload)
    run = run_of(session, client_run_id=payload, code=payload, transcript=json.dumps([{"content": payload}]))
    journal(run, [{"event": "tool.started", "tool_name": payload, "args": {payload: [payload]}}])
    message = message_of(run, {"text": payload, payload: payload}, public_id=payload, reply_to=payload)
    Connection.objects.create(
        user=alice, side="app", process=uuid.uuid4(), connected_at=timezone.now(), user_agent=payload
    )
    slot = AgentSlot.objects.create(user=alice, name="a")
    pages = [listed(reader, model, q=payload) + listed(reader, model) for model in MODELS]
    pages += [shown(reader, row) for row in (session, run, message, slot, Connection.objects.get())]
    for page in pages:
        assert payload not in page
    start = escape(payload)[:12]
    assert sum(start in page for page in pages) >= 7


def test_half_characters_and_broken_json_are_shown(alice: User, reader: Client) -> None:
    """What no frame may hold, but a row might."""
    for data in ('{"text":"\\ud800 x"}', "{not json", "", '{"text":"\\ud83d'):
        shown(reader, message_of(run_of(session_of(alice, data)), data))
    listed(reader, Message)


def test_long_texts_are_shortened(alice: User, reader: Client) -> None:
    """A line in lists, 20,000 characters on a page, and how many more there are."""
    run = run_of(session_of(alice, title="t" * 255), transcript=json.dumps([{"content": "h" * 30_000}]))
    message = message_of(run, {"text": "x" * 1_000_000, "more": "y" * 50_000})
    page = listed(reader, Message)
    assert "x" * 100 + "…" in page and "x" * 101 not in page
    assert "t" * 101 not in listed(reader, ChatSession)
    page = shown(reader, message)
    assert "x" * 20_000 in page and "x" * 20_001 not in page and "980000 more characters" in page
    assert "y" * 20_001 not in page
    page = shown(reader, run)
    assert "h" * 10_000 in page and "h" * 20_001 not in page and "more characters" in page


def test_lists_do_not_read_whole_texts(alice: User, reader: Client) -> None:
    """Eight megabytes may be in each row: the database sends the start of it."""
    message_of(run_of(session_of(alice)), {"text": "x" * 5000})
    with CaptureQueriesContext(connection) as asked:
        listed(reader, Message)
        listed(reader, Run)
    read = [query["sql"].split(" FROM ")[0].removeprefix("SELECT ").split(", ") for query in asked]
    assert any('"chat_message"."cursor"' in columns for columns in read)
    for columns in read:
        assert not {'"chat_message"."data"', '"chat_run"."transcript"'} & set(columns)


@pytest.mark.parametrize("model", MODELS)
def test_a_list_takes_as_many_queries_for_many_rows(alice: User, reader: Client, model: Any) -> None:
    """No query for each row."""
    counts = []
    for turn in range(2):
        for number in range(1 + turn * 10):
            user = services.create_user(f"user {turn} {number}", PASSWORD)
            one_of_each(user)
        listed(reader, model)
        with CaptureQueriesContext(connection) as asked:
            assert len(re.findall(r"/change/", listed(reader, model))) >= 1 + turn * 10
        counts.append(len(asked))
    assert counts[0] == counts[1]


def test_a_list_counts_to_a_bound(alice: User, reader: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it the page says so, and there are no pages."""
    monkeypatch.setattr(browsing, "BROWSED_ROWS", 120)
    run = run_of(session_of(alice))
    Message.objects.bulk_create(
        Message(
            user=alice, session=run.session, run=run, side="app", public_id=f"m{number}", type="text",
            agent="hermes", ts=0, data="{}", created_at=timezone.now(), cursor=number,
        )
        for number in range(130)
    )  # fmt: skip
    newest = list(Message.objects.order_by("-pk").values_list("pk", flat=True))
    first, second = listed(reader, Message), listed(reader, Message, p=2)
    assert links(first) == newest[:100] and links(second) == newest[100:120]
    assert "Only the first 120 can be paged through" in first
    assert "Only the first" not in listed(reader, Message, q="m7")
    within = listed(reader, Message, session__id__exact=run.session_id)
    assert links(within) == list(Message.objects.order_by("-cursor").values_list("pk", flat=True)[:100])


def test_rows_are_found_by_names_and_ids(alice: User, bob: User, reader: Client) -> None:
    """By username, id, session, run; and by a username and an id together. All exactly."""
    runs = {user: run_of(session_of(user, "plan b")) for user in (alice, bob)}
    for user, run in runs.items():
        message_of(run, public_id=f"m {user}", cursor=1)
        message_of(run, public_id="same", side="agent", cursor=2)
    keys = {(message.user.username, message.public_id): message.pk for message in Message.objects.all()}
    of_alice = {keys["alice", "m alice"], keys["alice", "same"]}
    for term, found in (
        ("alice", of_alice),
        (" alice ", of_alice),
        ("plan b", set(keys.values())),
        ("m alice", {keys["alice", "m alice"]}),
        ("same", {keys["alice", "same"], keys["bob", "same"]}),
        ("alice same", {keys["alice", "same"]}),
        (runs[alice].public_id, of_alice),
        ("ali", set()),
        ("nobody same", set()),
        ("alice nothing", set()),
        ("%", set()),
        ("", set(keys.values())),
    ):
        assert set(links(listed(reader, Message, q=term))) == found, term
    sessions = {user: run.session_id for user, run in runs.items()}
    assert set(links(listed(reader, ChatSession, q="plan b"))) == set(sessions.values())
    assert links(listed(reader, ChatSession, q="bob")) == [sessions[bob]]
    assert links(listed(reader, Run, q=runs[bob].public_id)) == [runs[bob].pk]
    assert links(listed(reader, Run, q="alice")) == [runs[alice].pk]
    assert set(links(listed(reader, Run, q="plan b"))) == {run.pk for run in runs.values()}
    slot = AgentSlot.objects.create(user=bob, name="work")
    for term in ("bob", "work", "bob work"):
        assert links(listed(reader, AgentSlot, q=term)) == [slot.pk]
    assert links(listed(reader, AgentSlot, q="alice work")) == []


def test_pages_lead_to_what_belongs_together(alice: User, bob: User, reader: Client) -> None:
    """From a session to its messages and runs, from a run to its messages."""
    for user in (alice, bob):
        message_of(run_of(session_of(user)))
    session, run, message = (model.objects.get(user=alice) for model in (ChatSession, Run, Message))
    for row, found in ((session, {message.pk, run.pk}), (run, {message.pk})):
        urls = re.findall(r'<a href="(/admin/chat/\w+/\?\w+=\d+)">', shown(reader, row))
        keys = {key for url in urls for key in links(reader.get(url).content.decode())}
        assert keys == found


@pytest.mark.parametrize(
    ("model", "query", "count"),
    [
        (ChatSession, {"state": "open"}, 1),
        (ChatSession, {"state": "pinned"}, 0),
        (ChatSession, {"state": "archived"}, 1),
        (ChatSession, {"state": "deleted"}, 1),
        (ChatSession, {"created": "1"}, 2),
        (ChatSession, {"created": "720"}, 3),
        (ChatSession, {"created": "99999999"}, 3),
        (ChatSession, {"state": "x' OR 1=1"}, 3),
        (Message, {"side": "app"}, 2),
        (Message, {"side": "agent", "type": "image"}, 1),
        (Message, {"state": "open"}, 1),
        (Message, {"state": "finished"}, 1),
        (Message, {"state": "replaced"}, 1),
        (Message, {"session__id__exact": "99999999999999999999"}, 0),
        (Run, {"status": "running"}, 1),
        (Run, {"status": "completed"}, 2),
        (AgentSlot, {"connected": "yes"}, 1),
        (AgentSlot, {"connected": "no"}, 1),
        (Connection, {"side": "app"}, 0),
    ],
)
def test_filters(alice: User, reader: Client, model: Any, query: dict[str, str], count: int) -> None:
    """Each choice, and what is none of them."""
    past = timezone.now() - timedelta(days=3)
    sessions = [
        session_of(alice, "one"),
        session_of(alice, "two", archived=True),
        session_of(alice, "three", deleted_at=past, created_at=past),
    ]
    runs = [
        run_of(session, status=status)
        for session, status in zip(sessions, ("running", "completed", "completed"), strict=True)
    ]
    last = message_of(runs[0], side="agent", type="image", cursor=1)
    message_of(runs[1], cursor=2, replaced_by=last)
    message_of(runs[2])
    AgentSlot.objects.create(user=alice, name="here", process=uuid.uuid4())
    AgentSlot.objects.create(user=alice, name="away")
    assert len(links(listed(reader, model, **query))) == count


def test_events_of_a_run_are_shown_in_order(alice: User, reader: Client, viewer: Client) -> None:
    """Number, name, time, and payload or size; a page of them at a time; one alone at length."""
    run = run_of(session_of(alice))
    made: list[dict[str, Any]] = [
        {"event": "assistant.delta", "delta": f"piece {number}."} for number in range(1, 250)
    ]
    made.append({"event": "tool.completed", "preview": "p" * 30_000, "v3": {"skip": 1}})
    journal(run, made, rows=7)
    seen: list[int] = []
    url: str | None = ""
    while url is not None:
        page = reader.get(f"/admin/chat/run/{run.pk}/change/{url}").content.decode()
        rows = re.findall(r'<a href="\?event=(\d+)#events-heading">', page)
        pieces = re.findall(r"piece (\d+)\.", page)
        assert pieces == [number for number in rows if number != "250"]
        seen += map(int, rows)
        later = re.search(r'<a href="([^"]+)">Later</a>', page)
        url = later[1] if later else None
    assert seen == list(range(1, 251))
    assert "p" * 1_000 in page and "p" * 2_001 not in page and "more characters" in page
    assert "tool.completed" in page and "2025-11-30 18:00:00.500" in page and "v3&quot;" not in page
    earlier = re.search(r'<a href="(\?after=\d+)#events-heading">Earlier</a>', page)
    assert earlier and earlier[1] == "?after=100"
    alone = shown(reader, run, event=250)
    assert "p" * 19_000 in alone and "p" * 20_001 not in alone and "piece" not in alone
    hidden = shown(viewer, run, after=200)
    assert "tool.completed" in hidden and "29.3\xa0KB" in hidden and "ppp" not in hidden


@pytest.mark.parametrize("place", ["x", "-5", "²", "1e9", "99999999999999999999", "999999999", ""])
def test_any_place_in_the_events_is_a_page(alice: User, reader: Client, place: str) -> None:
    """Whatever the address says."""
    run = run_of(session_of(alice))
    journal(run, [{"event": "run.completed"}])
    assert "Events (1)" in shown(reader, run, after=place)
    assert "Events (1)" in shown(reader, run, event=place)


def test_a_purged_journal_is_said(alice: User, reader: Client) -> None:
    """The run keeps its last number."""
    run = run_of(session_of(alice), last_seq=12)
    page = shown(reader, run)
    assert "Events (12)" in page and "The journal holds none here any more." in page
    assert "The journal holds none." in shown(reader, run_of(session_of(alice, "new"), status="queued"))


def test_who_is_connected_where(alice: User, viewer: Client) -> None:
    """Sockets and agents with the host that holds them, processes with what they hold."""
    process = one_of_each(alice)[-1]
    Connection.objects.create(
        user=alice,
        side="agent",
        agent="lost",
        process=uuid.uuid4(),
        connected_at=timezone.now(),
        caps="sync,events",
    )
    dead = Process.objects.create(
        uuid=uuid.uuid4(),
        host="gateway-two",
        started_at=timezone.now(),
        lease=timezone.now() - timedelta(minutes=1),
    )
    page = listed(viewer, Connection)
    assert f"gateway-one {str(process.uuid)[:8]}" in page and "gone " in page and "sync, events" in page
    page = listed(viewer, AgentSlot)
    assert "gateway-one" in page and '<td class="field-generation">7</td>' in page and "icon-yes" in page
    page = listed(viewer, Process)
    row = next(part for part in page.split("<tr>") if "gateway-one" in part)
    assert '<td class="field-sockets">1</td>' in row and '<td class="field-agents">1</td>' in row
    assert "icon-yes" in row
    assert "icon-no" in next(part for part in page.split("<tr>") if "gateway-two" in part)
    assert "icon-no" in shown(viewer, dead)
    slot = AgentSlot.objects.get()
    AgentSlot.objects.update(takeovers="[1764525600.5]")
    assert "2025-11-30 18:00:00.500" in shown(viewer, slot)


def test_sizes_are_bytes(alice: User, viewer: Client) -> None:
    """Not characters, on either database."""
    message_of(run_of(session_of(alice)), '{"text":"é漢😀"}')
    assert "20\xa0bytes" in listed(viewer, Message)
