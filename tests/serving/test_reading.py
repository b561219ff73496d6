"""Frames without a socket: however the network cuts the bytes, the messages are the same."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_site.serving.frames import Frames, Message
from tests.serving.rig import BINARY, CONT, PING, TEXT, frame

LIMIT = 1000
ROOM = 10_000

message = st.one_of(
    st.text(max_size=150).map(lambda text: ("text", text)),
    st.binary(max_size=150).map(lambda data: ("bytes", data)),
)


@st.composite
def conversation(draw: st.DrawFn) -> tuple[list[Message], bytes]:
    """Messages, and bytes that carry them: in one frame or several, with pings between."""
    messages: list[Message] = []
    wire = b""
    for kind, content in draw(st.lists(message, max_size=8)):
        messages.append({"type": "websocket.receive", kind: content})
        payload = content.encode() if kind == "text" else content
        cuts = sorted(draw(st.lists(st.integers(0, len(payload)), max_size=3)))
        bounds = list(zip([0, *cuts], [*cuts, len(payload)], strict=True))
        for at, (start, stop) in enumerate(bounds):
            opcode = CONT if at else TEXT if kind == "text" else BINARY
            wire += frame(opcode, payload[start:stop], fin=at == len(bounds) - 1)
            if draw(st.booleans()):
                wire += frame(PING, b"p")
    return messages, wire


@settings(max_examples=200, deadline=None)
@given(conversation(), st.data())
def test_chopping_changes_nothing(talk: tuple[list[Message], bytes], data: st.DataObject):
    """Any cut of the bytes gives the same messages and the same answers as one piece."""
    messages, wire = talk
    whole = Frames(LIMIT)
    assert whole.receive(wire, ROOM) == messages
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    chopped = Frames(LIMIT)
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        found += chopped.receive(wire[start:stop], ROOM)
    assert found == messages
    assert chopped.pending() == whole.pending()


@settings(max_examples=100, deadline=None)
@given(conversation(), st.integers(1, 3))
def test_room_is_kept(talk: tuple[list[Message], bytes], room: int):
    """No call gives more messages than there is room for, and none is lost."""
    messages, wire = talk
    frames = Frames(LIMIT)
    found = frames.receive(wire, room)
    assert len(found) <= room
    while frames.left:
        more = frames.receive(b"", room)
        assert len(more) <= room
        found += more
    assert found == messages


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_anything_may_come(wire: bytes):
    """No bytes make the reader fail in another way than by a close frame."""
    frames = Frames(LIMIT)
    frames.receive(wire, ROOM)
    written, last = frames.pending()
    assert (frames.closed() is not None) is last
    assert bool(written) or not last


def test_what_is_written_can_be_read():
    """Texts and binaries of every kind of length have the right head."""
    for length in (0, 1, 125, 126, 65535, 65536):
        head = Frames(LIMIT).text("x" * length)[:-length] if length else Frames(LIMIT).text("")
        assert head == frame(TEXT, b"x" * length, mask=None)[: len(head)]
        assert Frames(LIMIT).binary(b"x" * length) == frame(BINARY, b"x" * length, mask=None)
