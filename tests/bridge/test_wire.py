"""Text and frames as the gateway takes them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from bridge import wire

ANYTHING = st.text(st.characters(exclude_categories=()), max_size=40)


@given(st.lists(ANYTHING, max_size=8))
def test_pieces_are_cleaned_as_the_whole_is(pieces: list[str]):
    """However a text is cut, the cleaned pieces together are the cleaned text."""
    cleaner = wire.Cleaner()
    out = "".join(cleaner.feed(piece) for piece in pieces) + cleaner.rest()
    assert out == wire.clean("".join(pieces))
    assert "\x00" not in out
    out.encode()


def test_a_pair_cut_in_two_is_one_character():
    """A surrogate pair split over two pieces becomes its character; a lone half becomes U+FFFD."""
    cleaner = wire.Cleaner()
    assert cleaner.feed("a\ud83d") == "a"
    assert cleaner.feed("\ude00b") == "\U0001f600b"
    assert cleaner.feed("c\ud83d") + cleaner.rest() == "c\ufffd"


@given(st.dictionaries(st.text(), st.recursive(ANYTHING, lambda inner: st.lists(inner, max_size=3))))
def test_every_frame_can_be_written(data: dict[str, object]):
    """Whatever is in a frame, it leaves as UTF-8 JSON."""
    assert json.loads(wire.encode({"type": "event", "data": data}).encode())["type"] == "event"


def test_what_is_no_frame_is_none():
    """Neither broken JSON nor an object without a type is a frame."""
    for text in ("{", "[]", "null", '"x"', "{}", '{"type": 1}', b"\xff\xfe"):
        assert wire.decode(text) is None
    assert wire.decode('{"type": "ping"}') == {"type": "ping"}


def test_event_fields_are_made_to_fit():
    """A preview is shortened, large or unfit arguments are left out, the rest stays."""
    fitted = wire.fit(
        {"preview": "p" * 900, "args": {"content": "x" * 9000}, "tool_name": "a\x00b", "duration": 1.5}
    )
    assert (len(fitted["preview"]), fitted["args"]) == (500, None)
    assert (fitted["tool_name"], fitted["duration"]) == ("a\ufffdb", 1.5)
    assert wire.fit({"args": {"x": "\ud800"}})["args"] is None
    assert wire.fit({"args": {"x": "é"}})["args"] == {"x": "é"}
