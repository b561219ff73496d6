"""Range headers against sizes."""

import pytest

from media.ranges import RangeNotSatisfiable, Span, span


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0", Span(0, 1)),
        ("bytes=0-", Span(0, 100)),
        ("bytes=10-19", Span(10, 20)),
        ("bytes=90-500", Span(90, 100)),
        ("bytes=99-", Span(99, 100)),
        ("bytes=-1", Span(99, 100)),
        ("bytes=-500", Span(0, 100)),
        ("Bytes= 10-19 ", Span(10, 20)),
        ("bytes=0-" + "9" * 90, Span(0, 100)),
    ],
)
def test_one_range_is_a_span(header, expected):
    """A single range gives the bytes it names, as far as there are any."""
    assert span(header, 100) == expected


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=5-4",
        "bytes=a-b",
        "lines=0-1",
        "bytes=0-1,5-6",
        "bytes=1_0-20",
    ],
)
def test_what_is_no_single_range_means_the_whole(header):
    """No range, no sense, another unit, or several ranges: the whole file is sent."""
    assert span(header, 100) is None


@pytest.mark.parametrize(
    ("header", "size"), [("bytes=100-", 100), ("bytes=-0", 100), ("bytes=0-", 0), ("bytes=-5", 0)]
)
def test_a_range_without_a_byte_is_refused(header, size):
    """A range in which no byte lies is an error with status 416."""
    with pytest.raises(RangeNotSatisfiable) as caught:
        span(header, size)
    assert caught.value.status == 416


def test_a_span_says_where_it_lies():
    """Content-Range counts the last byte in."""
    assert Span(10, 20).content_range(100) == "bytes 10-19/100"
