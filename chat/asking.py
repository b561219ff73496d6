"""One turn that the gateway asks of a Hermes API server itself: what it sends, what it hears, how it ends."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import logging
import uuid
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any, Protocol

from django.conf import settings

from bridge import events, orders, wire
from bridge.events import Order, Refused
from bridge.hermes import Hermes
from bridge.state import Conversation
from chat import agents, claims, queries
from chat.journal import Journal
from chat.turns import Slot
from hermes_site.errors import Conflict, GatewayError, Gone
from media.storage import Reader

logger = logging.getLogger(__name__)

ONLY_TEXT = "This agent cannot take a {} yet; please send text or pictures."


class Teller(Protocol):
    """Who passes on what a turn has to say."""

    user_id: int
    slot: Slot

    def tell(self, work: Work) -> None:
        """It has more to say."""


class Work:
    """
    One message of a person on its way to an answer.

    `dropped`: its turn has ended here, and nobody waits for what Hermes still says.
    """

    def __init__(self, teller: Teller, client: Hermes, journal: Journal, frame: dict[str, Any]) -> None:
        self.message_id: str = frame["id"]
        self.session: str = frame["session"]
        self.answer = orders.empty_answer(frame)
        self.run: int | None = None
        self.hermes_id: str | None = None
        self.request_id: str | None = None  # the request for approval that is open
        self.dropped = False
        self.over = False  # Hermes has ended it, or was never asked
        self._teller = teller
        self._client = client
        self._journal = journal
        self._frame = frame
        self._stopping = False

    async def work(self) -> None:
        """Ask, and pass on what comes, up to the one end."""
        try:
            async with asyncio.timeout(settings.HERMES_UPSTREAM_TURN_SECONDS):
                if await self._ask():
                    await self._follow()
        except Conflict:
            self.dropped = True
        except Refused as error:
            never_began = self._stopping and error.reason != "unknown"
            self._say(
                events.Cancelled() if never_began else events.Failed(error.text, error.code, error.reason)
            )
        except TimeoutError:
            self._say(events.Failed("The agent took too long.", "timeout"))
            await self.stop_hermes()
        except GatewayError as error:
            self._say(events.Failed(error.text))
        except Exception:
            logger.exception("a turn of the upstream failed inside the gateway")
            self._say(events.Failed("The gateway failed in this turn."))
            await self.stop_hermes()
        finally:
            self.over = True

    async def stop(self) -> None:
        """End it: before it was asked at once, else when Hermes says so."""
        if not self._stopping:
            self._stopping = True
            await self.stop_hermes()

    async def stop_hermes(self) -> None:
        """Ask for the end of what was begun, if that is known."""
        if self.hermes_id is None or self.over:
            return
        try:
            await self._client.stop(self.hermes_id)
        except Refused as error:
            logger.warning("the upstream did not take a stop: %s", error.text)

    async def steer(self, text: str) -> bool:
        """Add a remark; False when it was not taken."""
        taken = False
        if self.hermes_id is not None and not self.over and not self._stopping:
            try:
                taken = await self._client.steer(self.hermes_id, text)
            except Refused as error:
                logger.warning("the upstream did not take a remark: %s", error.text)
        if not taken:
            self.answer.leave(text)
        return taken

    async def approve(self, choice: str) -> None:
        """Answer the open request for approval."""
        request_id, self.request_id = self.request_id, None
        self.answer.answered()
        if request_id is None or self.hermes_id is None:
            return
        try:
            await self._client.approve(self.hermes_id, request_id, choice)
        except Refused as error:
            logger.warning("the upstream did not take the answer to its request: %s", error.text)

    async def _ask(self) -> bool:
        """
        Give it to Hermes, after it is on disk that this was done; False when it is not wanted any more.

        Raises:
            Refused: If Hermes does not take it.
            Conflict: If the turn has ended meanwhile.
        """
        user_id = self._teller.user_id
        place = await queries.pool.read(claims.place, user_id, self.message_id)
        if place is None:
            raise Conflict("this turn has ended")
        self.run = place.run
        upstream_id = session_id(
            place.upstream_id,
            anew=self._frame.get("replace_from") is not None,
            past=bool(past := as_history(place.history)),
        )
        order = await self._order(upstream_id, past)
        if self._stopping:
            self._say(events.Cancelled())
            return False
        await self._journal.do(claims.Asking(user_id, place, upstream_id))
        self.hermes_id = await self._client.start(order)
        try:
            await self._journal.do(
                claims.Asked(place.run, self.hermes_id, self._teller.slot, await self._caps())
            )
        except (GatewayError, Refused) as error:
            logger.warning("it could not be noted what the upstream was asked: %s", error.text)
        if self._stopping or self.dropped:
            await self.stop_hermes()
        return True

    async def _caps(self) -> frozenset[str]:
        """What this Hermes lets its agent do."""
        dialect = await self._client.dialect()
        return agents.UPSTREAM_CAPS | {agents.STEER} if dialect.steers else agents.UPSTREAM_CAPS

    async def _order(self, upstream_id: str, past: tuple[dict[str, str], ...]) -> Order:
        conversation = Conversation(upstream_id, rewritten=upstream_id.endswith(PAST))
        order = orders.order(self._frame, conversation, past)
        memory = upstream_id.rpartition("_")[0]
        if order.kind not in ("text", "image"):
            raise Refused(ONLY_TEXT.format(order.kind), "unsupported")
        images = (*await self._pictures(), *order.images)
        return dataclasses.replace(order, images=images, memory=memory)

    async def _pictures(self) -> list[str]:
        """The pictures that come with the message, as they are sent: in data URLs."""
        data = self._frame.get("data") or {}
        named = [*data.get("media_list", ()), data.get("media")]
        ids = list(dict.fromkeys(one["id"] for one in named if isinstance(one, dict)))
        files = await queries.pool.read(claims.pictures, self._teller.user_id, ids) if ids else []
        if sum(media.size for media in files) > settings.HERMES_UPSTREAM_IMAGE_BYTES:
            raise Refused("The pictures are too large for the agent.", "file_too_large")
        urls = []
        for media in files:
            try:
                reader = await asyncio.to_thread(Reader, media.storage_name, 0, media.size)
            except Gone as error:
                raise Refused("A picture was lost.", "upload_failed") from error
            try:
                content = b"".join([piece async for piece in reader])
            finally:
                reader.close()
            urls.append(f"data:{media.type};base64,{base64.b64encode(content).decode()}")
        return urls

    async def _follow(self) -> None:
        cleaner = wire.Cleaner()
        assert self.hermes_id is not None
        async with aclosing(self._client.follow(self.hermes_id)) as happening:
            async for event in happening:
                match event:
                    case events.Delta(text):
                        self._say(events.Delta(cleaner.feed(text)))
                    case events.Completed() | events.Failed() | events.Cancelled():
                        self._say(events.Delta(cleaner.rest()))
                        self._say(event)
                        return
                    case events.ApprovalRequest(request_id=request_id):
                        self.request_id = request_id
                        self._say(event)
                    case _:
                        self._say(event)
                if self._journal.full:
                    await self._journal.room()
        self._say(events.Failed("The agent's answer broke off."))

    def _say(self, event: events.Event) -> None:
        self.answer.add(event)
        self._teller.tell(self)


PAST = "p"  # ends the name of a session whose past Hermes has to be told: its own record is another one


def session_id(kept: str | None, *, anew: bool, past: bool) -> str:
    """
    What a session is called at Hermes: random, never the client's string, and another one when its past is replaced.

    The part before the last `_` stays the same: the name of the session's memory.
    """
    if kept is not None and not anew:
        return kept
    memory, _, number = (kept or f"hc_{uuid.uuid4().hex}_0").rpartition("_")
    return f"{memory}_{int(number.removesuffix(PAST)) + 1}{PAST if past else ''}"


def as_history(rows: Iterable[dict[str, Any]]) -> tuple[dict[str, str], ...]:
    """
    A conversation as Hermes takes it: questions and answers in turn, beginning with a question.

    Questions that were never answered are left out; several messages of one answer are one; the newest are kept
    within the bytes that may be sent.
    """
    history: list[dict[str, str]] = []
    for row in rows:
        role, content = row["role"], row["content"]
        if history and history[-1]["role"] == role == "assistant":
            history[-1] = {"role": role, "content": f"{history[-1]['content']}\n\n{content}"}
        elif history and history[-1]["role"] == role:
            history[-1] = {"role": role, "content": content}
        elif content:
            history.append({"role": role, "content": content})
    if history and history[-1]["role"] == "user":
        history.pop()
    room = settings.HERMES_UPSTREAM_HISTORY_BYTES
    start = len(history)
    while start and (room := room - len(history[start - 1]["content"].encode())) >= 0:
        start -= 1
    while start < len(history) and history[start]["role"] != "user":
        start += 1
    return tuple(history[start:])
