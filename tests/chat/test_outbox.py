"""What waits for one socket: in order, joined, bounded."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat.outbox import Outbox
from chat.telling import Out, piece_frame, piece_head

HEADS = {session: piece_head("hermes", "alice", session) for session in ("S1", "S2")}


def piece(session: str, text: str) -> Out:
    """A piece of a stream, as it is told."""
    return Out(piece_frame(HEADS[session], text), HEADS[session], text)


def drained(outbox: Outbox) -> list[str]:
    """All that waits, as text."""
    taken = []
    while (text := outbox.take()) is not None:
        taken.append(text)
    return taken


def shown(texts: list[str]) -> list[str]:
    """Frames in a short spelling: `S1:text` for a piece."""
    frames = [json.loads(text) for text in texts]
    return [
        f"{frame['session']}:{frame['data']['text']}" if frame["type"] == "stream" else frame["type"]
        for frame in frames
    ]


def filled(*outs: Out | str, items: int = 100, size: int = 10_000) -> Outbox:
    """An outbox in which these wait."""
    outbox = Outbox(items, size)
    for out in outs:
        if isinstance(out, str):
            outbox.put_text(json.dumps({"type": out}))
        else:
            outbox.put(out)
    return outbox


def test_pieces_of_one_stream_that_wait_are_joined() -> None:
    """One frame with all the text, valid JSON."""
    outbox = filled(piece("S1", 'a"'), piece("S1", "\n"), piece("S1", "é"))
    assert shown(drained(outbox)) == ['S1:a"\né']
    assert not outbox


def test_only_neighbours_are_joined() -> None:
    """Not across another stream's piece, nor across any other frame: order is theirs."""
    outbox = filled(
        piece("S1", "a"), piece("S2", "x"), piece("S1", "b"), "stream_end", piece("S1", "c"), "pong", piece("S1", "d"), piece("S1", "e")
    )  # fmt: skip
    assert shown(drained(outbox)) == ["S1:a", "S2:x", "S1:b", "stream_end", "S1:c", "pong", "S1:de"]


def test_a_piece_that_was_taken_is_not_added_to() -> None:
    """What has left has left."""
    outbox = filled(piece("S1", "a"))
    assert shown(drained(outbox)) == ["S1:a"]
    outbox.put(piece("S1", "b"))
    assert shown(drained(outbox)) == ["S1:b"]


moves = st.lists(st.sampled_from(["S1", "S2", "stream_end", "take"]), max_size=40)


@given(moves)
@settings(max_examples=200, deadline=None)
def test_text_is_never_lost_doubled_or_moved(moves: list[str]) -> None:
    """Whatever is put and taken in between, each stream's text and the order of all frames stay."""
    outbox, taken, put = Outbox(1000, 100_000), [], []
    for number, move in enumerate(moves):
        if move == "take":
            text = outbox.take()
            taken += [text] if text is not None else []
        elif move == "stream_end":
            put.append(move)
            outbox.put_text('{"type":"stream_end"}')
        else:
            put.append(f"{move}:{number},")
            outbox.put(piece(move, f"{number},"))
    taken += drained(outbox)
    single = [part for one in shown(taken) for part in _split(one)]
    assert single == put
    assert not outbox.over


def _split(one: str) -> list[str]:
    session, colon, text = one.partition(":")
    return [f"{session}:{part}," for part in text.split(",")[:-1]] if colon else [one]


def test_more_frames_than_fit_are_too_many() -> None:
    """Then nothing waits any more, and nothing is added."""
    outbox = filled(*["pong"] * 3, items=3)
    assert not outbox.over
    outbox.put_text("{}")
    assert outbox.over
    assert not outbox
    outbox.put_text("{}")
    assert outbox.take() is None


def test_joined_pieces_are_one_frame_of_the_bound() -> None:
    """A slow reader of one stream is bounded by bytes."""
    outbox = filled(*[piece("S1", "x")] * 500, items=3)
    assert not outbox.over
    assert shown(drained(outbox)) == ["S1:" + "x" * 500]


@pytest.mark.parametrize("joined", [True, False])
def test_more_text_than_fits_is_too_much(joined: bool) -> None:
    """Whether it is many joined pieces or some frames."""
    outbox = Outbox(1000, 500)
    for _ in range(600):
        if joined:
            outbox.put(piece("S1", "x"))
        else:
            outbox.put_text("x")
    assert outbox.over


def test_one_frame_may_be_as_large_as_any() -> None:
    """A reader is too slow when more waits behind it, not because somebody said much at once."""
    outbox = Outbox(1000, 500)
    outbox.put_text("x" * 5000)
    assert not outbox.over
    assert outbox.take() == "x" * 5000
    outbox.put_text("x" * 5000)
    outbox.put_text("y")
    assert outbox.over


def test_what_was_taken_does_not_count_any_more() -> None:
    """A reader that keeps up may read for ever."""
    outbox = Outbox(5, 1000)
    for _ in range(1000):
        outbox.put(piece("S1", "x" * 100))
        outbox.put(piece("S1", "y" * 100))
        outbox.put_text("z" * 100)
        assert len(drained(outbox)) == 2
    assert not outbox.over


async def test_a_pump_waits_until_something_waits() -> None:
    """And is woken by a frame, by `wake`, and by the end."""
    outbox = Outbox(1, 1000)
    for wake in (
        lambda: outbox.put_text("{}"),
        outbox.wake,
        lambda: (outbox.put_text("{}"), outbox.put_text("{}")),
    ):
        drained(outbox)
        waiting = asyncio.ensure_future(outbox.ready())
        await asyncio.sleep(0)
        assert not waiting.done()
        wake()
        await asyncio.wait_for(waiting, 5)
    assert outbox.over
    await asyncio.wait_for(outbox.ready(), 5)


async def test_a_pump_that_is_cancelled_leaves_no_trace() -> None:
    """A frame put later wakes nobody, and waits."""
    outbox = Outbox(10, 1000)
    waiting = asyncio.ensure_future(outbox.ready())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    outbox.put_text("{}")
    await asyncio.wait_for(outbox.ready(), 5)
    assert outbox.take() == "{}"
