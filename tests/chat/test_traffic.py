"""How traffic is written for operators: bounded, and plain text whatever it is."""

import json
import time

import pytest
from django.utils.html import escape

from chat import keys, traffic


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "1970-01-01 00:00:00+00:00"),
        (1719123456, "2024-06-23 06:17:36+00:00"),
        (1764525600.123, "2025-11-30 18:00:00.123+00:00"),
        (1719123456789, "1719123456789 (no date)"),
        (253402300800, "253402300800 (no date)"),
        (2**53, "9007199254740992 (no date)"),
        (9223372036854775807, "9223372036854775807 (no date)"),
        (float("inf"), "inf (no date)"),
        (float("nan"), "nan (no date)"),
        (None, "-"),
    ],
)
def test_c20_a_time_is_a_date_or_its_number(seconds: float | None, shown: str) -> None:
    """C20: no number ends in an OverflowError."""
    assert traffic.moment(seconds) == shown


def test_c20_the_last_second_of_the_calendar_in_another_zone(settings: object) -> None:
    """C20: a date that only the zone pushes over the end of the calendar."""
    settings.TIME_ZONE = "Asia/Shanghai"  # type: ignore[attr-defined]
    assert traffic.moment(253402300799) == "253402300799 (no date)"
    assert traffic.moment(0) == "1970-01-01 08:00:00+08:00"


def test_a_line_is_short_and_one_line() -> None:
    """White space of all kinds is one space; what is left out shows."""
    assert traffic.one_line("a\n\n b\tc") == "a b c"
    assert traffic.one_line("x" * 100) == "x" * 100
    assert traffic.one_line("x" * 101) == "x" * 100 + "…"
    assert traffic.one_line(" " * 1000 + "x").endswith("…")


def test_a_page_says_how_much_more_there_is() -> None:
    """20,000 characters of a text."""
    assert traffic.bounded("x" * 20_000) == "x" * 20_000
    assert traffic.bounded("x" * 20_001) == "x" * 20_000 + "\n… 1 more characters"


@pytest.mark.parametrize(
    "stored", ["", "{", "nonsense", "[" * 100_000, '{"a":' + "9" * 5_000 + "}", '"\\ud800"', "null"]
)
def test_stored_json_of_any_kind_is_shown(stored: str) -> None:
    """Broken, deep, huge, or with half a character: text that can be sent, no exception."""
    for text in (traffic.pretty(stored), *traffic.split_text(stored), traffic.text_at_start(stored)):
        traffic.bounded(text).encode()
        traffic.one_line(text).encode()


def test_data_is_split_into_text_and_rest() -> None:
    """The text as it was written, the rest as JSON."""
    assert traffic.split_text('{"text":"a\\nb"}') == ("a\nb", "")
    assert traffic.split_text('{"media":{"id":"m"},"text":"é"}') == ("é", '{"media": {"id": "m"}}')
    assert traffic.split_text('{"text":1}') == ("", '{"text": 1}')


@pytest.mark.parametrize("text", ["hello", 'a "quoted" \\ line\n', "é漢😀" * 100, "\u2028</script>"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_start_of_data_gives_the_start_of_its_text(text: str, ascii_only: bool) -> None:
    """Wherever the stored JSON is cut."""
    stored = json.dumps({"text": text, "more": 1}, ensure_ascii=ascii_only, separators=(",", ":"))
    for length in range(len('{"text":"'), len(stored) + 1):
        found = traffic.printable(traffic.text_at_start(stored[:length]))
        assert text.startswith(found.rstrip("?"))
    assert traffic.text_at_start(stored) == text


def test_a_block_is_escaped() -> None:
    """Markup is text."""
    markup = "<script>alert('1')</script>&"
    assert traffic.block(markup) == f'<pre class="traffic">{escape(markup)}</pre>'


def test_new_keys_are_above_the_bound_of_their_time() -> None:
    """Also on a clock that is hours behind."""
    now = time.time()
    key = keys.new_key()
    assert keys.lowest_since(now) < key
    assert keys.lowest_since(now + 80_000) < key < keys.lowest_since(now + 100_000)
    assert keys.lowest_since(0) == 0
