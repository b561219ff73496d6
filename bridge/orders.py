"""What a frame of the gateway asks of the agent, and what the disk remembers of it."""

from __future__ import annotations

from typing import Any

from bridge import events, wire
from bridge.answer import Answer
from bridge.events import Order
from bridge.state import Conversation, Record
from bridge.wire import Frame

PICTURE_SCHEMES = ("http://", "https://", "data:image/")


def is_addressed(frame: Frame) -> bool:
    """Whether the frame says who asks whom, in which session, under which id."""
    return all(isinstance(frame.get(name), str) and frame[name] for name in ("id", "from", "to", "session"))


def order(frame: Frame, conversation: Conversation, history: tuple[dict[str, str], ...]) -> Order:
    """The turn that a user's message asks for."""
    data = _data(frame)
    instructions = data.get("instructions")
    images = data.get("images")
    return Order(
        key=frame["id"],
        session_id=conversation.hermes_id,
        text=_text(frame),
        instructions=instructions if isinstance(instructions, str) and instructions else None,
        history=history,
        rewritten=conversation.rewritten,
        images=tuple(
            url
            for url in (images if isinstance(images, list) else [])
            if str(url).startswith(PICTURE_SCHEMES)
        ),
        kind=frame["type"],
        media=_media(frame),
    )


def past(frame: Frame) -> list[tuple[str, str]] | None:
    """The conversation before a message that replaces others, as role and content; None when it replaces none."""
    rows = _data(frame).get("history")
    if frame.get("replace_from") is None or not isinstance(rows, list):
        return None
    return [
        (row["role"], row["content"])
        for row in rows
        if isinstance(row, dict)
        and row.get("role") in ("user", "assistant")
        and isinstance(row.get("content"), str)
    ]


def question(frame: Frame) -> str:
    """How the message is remembered in the conversation: media as text with name and id."""
    media = _media(frame)
    if media is None:
        return _text(frame)
    return f"{_text(frame)}\n[{frame['type']}: {media.get('name')} ({media.get('id')})]".strip()


def frame_of(record: Record) -> Frame:
    """As much of the user's message as is remembered."""
    return {
        "type": "text",
        "id": record.message_id,
        "from": record.user,
        "to": record.agent,
        "session": record.session,
        "data": {"text": record.question},
    }


def retell(answer: Answer, record: Record) -> None:
    """Put an answer that was finished before into the mouth of this one."""
    match record.outcome:
        case "completed":
            answer.add(events.Delta(record.text or ""))
            answer.add(events.Completed())
        case "cancelled":
            answer.add(events.Delta(record.text or ""))
            answer.add(events.Cancelled())
        case _:
            answer.add(events.Failed(record.text or "The turn failed.", record.code or "internal"))


def empty_answer(frame: Frame, stream_id: str | None = None) -> Answer:
    """The answer to this message, with nothing said yet."""
    return Answer(
        user=frame["from"],
        agent=frame["to"],
        session=frame["session"],
        message_id=frame["id"],
        stream_id=stream_id or wire.new_id(),
    )


def _data(frame: Frame) -> dict[str, Any]:
    data = frame.get("data")
    return data if isinstance(data, dict) else {}


def _text(frame: Frame) -> str:
    text = _data(frame).get("text")
    return text if isinstance(text, str) else ""


def _media(frame: Frame) -> dict[str, Any] | None:
    media = _data(frame).get("media")
    return media if frame["type"] in wire.MEDIA_TYPES and isinstance(media, dict) else None
