"""
Cases of the WebSocket protocol as data, after sections 1 to 7, 9 and 10 of the Autobahn test suite.

A case is a list of steps on a fresh connection to an application that echoes: bytes to send, and frames to expect in
this order. After the last step the server must have ended the connection.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tests.serving.rig import BINARY, CLOSE, CONT, PING, PONG, TEXT, closing, frame

LIMIT = 1024 * 1024  # bytes of one message, as the server under test has it
RAW = bytes([0x00, 0xFF, 0xFE, 0xFD, 0xFC, 0xFB, 0x00, 0xFF])
HELLO = "Hello-µ@ßöäüàá-UTF-8!!".encode()
PROTOCOL_ERROR, BAD_DATA, TOO_BIG = 1002, 1007, 1009


@dataclass(frozen=True, slots=True)
class Send:
    """Send bytes, `step` at a time (0: at once)."""

    data: bytes
    step: int = 0


@dataclass(frozen=True, slots=True)
class Get:
    """Expect a frame; of a close frame only the code is compared, None meaning an empty one."""

    opcode: int
    payload: bytes = b""
    code: int | None = None


Case = list[Send | Get]


def ends_well(*steps: Send | Get) -> Case:
    """The steps, then a closing handshake."""
    return [*steps, Send(closing(1000)), Get(CLOSE, code=1000)]


def fails(*steps: Send | Get, code: int = PROTOCOL_ERROR) -> Case:
    """The steps, then the server gives up."""
    return [*steps, Get(CLOSE, code=code)]


def echoed(opcode: int, payload: bytes, step: int = 0) -> Case:
    """One message that comes back."""
    return ends_well(Send(frame(opcode, payload), step), Get(opcode, payload))


def fragments(opcode: int, parts: list[bytes]) -> list[bytes]:
    """A message in as many frames as it has parts."""
    last = len(parts) - 1
    return [frame(opcode if at == 0 else CONT, part, fin=at == last) for at, part in enumerate(parts)]


def in_pieces(payload: bytes, size: int) -> list[bytes]:
    """The payload in pieces of this size."""
    return [payload[start : start + size] for start in range(0, len(payload), size)]


def framing() -> Iterator[tuple[str, Case]]:
    """1: texts and binaries of every kind of length, whole and chopped by the network."""
    lengths = [0, 1, 2, 7, 124, 125, 126, 127, 128, 255, 256, 65534, 65535, 65536, 65537]
    for opcode, name in ((TEXT, "text"), (BINARY, "binary")):
        payload = b"*" if opcode == TEXT else b"\xfe"
        for length in lengths:
            yield f"1-{name}-{length}", echoed(opcode, payload * length)
        for length, step in ((0, 1), (5, 1), (125, 1), (126, 1), (300, 1), (65536, 997), (65535, 1300)):
            yield f"1-{name}-{length}-by-{step}", echoed(opcode, payload * length, step)
    several = b"".join(frame(TEXT, b"%d" % number) for number in range(50))
    back = [Get(TEXT, b"%d" % number) for number in range(50)]
    yield "1-fifty-at-once", ends_well(Send(several), *back)
    yield "1-fifty-by-7", ends_well(Send(several, 7), *back)
    yield "1-zero-mask", ends_well(Send(frame(TEXT, HELLO, mask=bytes(4))), Get(TEXT, HELLO))
    long_head = b"\x81\xfe" + struct.pack("!H", 5) + bytes(4) + b"small"
    yield "1-length-16-for-a-small-one", ends_well(Send(long_head), Get(TEXT, b"small"))
    longest_head = b"\x81\xff" + struct.pack("!Q", 5) + bytes(4) + b"small"
    yield "1-length-64-for-a-small-one", ends_well(Send(longest_head), Get(TEXT, b"small"))
    for opcode, name in ((TEXT, "text"), (BINARY, "binary"), (PING, "ping"), (CLOSE, "close")):
        yield f"1-unmasked-{name}", fails(Send(frame(opcode, b"", mask=None)))
        yield f"1-unmasked-{name}-payload", fails(Send(frame(opcode, b"\x03\xe8unmasked", mask=None)))


def pings() -> Iterator[tuple[str, Case]]:
    """2: pings are answered by their payload, pongs by nothing."""
    for name, payload in (
        ("empty", b""),
        ("text", b"Hello, world!"),
        ("binary", RAW),
        ("125", b"\xfe" * 125),
    ):
        yield f"2-ping-{name}", ends_well(Send(frame(PING, payload)), Get(PONG, payload))
        yield f"2-pong-{name}", ends_well(Send(frame(PONG, payload)))
        both = frame(PONG, b"unasked") + frame(PING, payload)
        yield f"2-pong-then-ping-{name}", ends_well(Send(both), Get(PONG, payload))
    yield "2-ping-126", fails(Send(frame(PING, b"\xfe" * 126)))
    yield "2-pong-126", fails(Send(frame(PONG, b"\xfe" * 126)))
    yield "2-ping-65536", fails(Send(frame(PING, b"\xfe" * 65536)))
    yield "2-ping-125-by-1", ends_well(Send(frame(PING, b"\xfe" * 125), 1), Get(PONG, b"\xfe" * 125))
    ten = b"".join(frame(PING, b"payload-%d" % number) for number in range(10))
    back = [Get(PONG, b"payload-%d" % number) for number in range(10)]
    yield "2-ten-pings", ends_well(Send(ten), *back)
    yield "2-ten-pings-by-1", ends_well(Send(ten, 1), *back)


def reserved_bits() -> Iterator[tuple[str, Case]]:
    """3: without an extension each reserved bit is an error, in every kind of frame."""
    for rsv in range(1, 8):
        for opcode, payload, name in (
            (TEXT, HELLO, "text"),
            (TEXT, b"", "empty-text"),
            (BINARY, RAW, "binary"),
            (PING, b"", "ping"),
            (PONG, b"", "pong"),
            (CLOSE, b"\x03\xe8", "close"),
        ):
            yield f"3-rsv{rsv}-{name}", fails(Send(frame(opcode, payload, rsv=rsv)))
    good = [Send(frame(TEXT, HELLO)), Get(TEXT, HELLO)]
    yield "3-after-a-text", fails(*good, Send(frame(TEXT, HELLO, rsv=3) + frame(PING)))
    yield "3-after-a-text-by-1", fails(*good, Send(frame(TEXT, HELLO, rsv=4) + frame(PING), 1))
    yield "3-in-a-fragment", fails(Send(frame(TEXT, b"a", fin=False) + frame(CONT, b"b", rsv=1)))


def opcodes() -> Iterator[tuple[str, Case]]:
    """4: kinds of frame that nobody has defined."""
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        yield f"4-opcode-{opcode}", fails(Send(frame(opcode)))
        yield f"4-opcode-{opcode}-payload", fails(Send(frame(opcode, b"reserved")))
        good = [Send(frame(TEXT, HELLO)), Get(TEXT, HELLO)]
        yield f"4-opcode-{opcode}-after-text", fails(*good, Send(frame(opcode, b"reserved") + frame(PING)))


def fragmentation() -> Iterator[tuple[str, Case]]:
    """5: messages in several frames, with control frames between and frames out of place."""
    first, second = frame(TEXT, b"fragment1", fin=False), frame(CONT, b"fragment2")
    whole = Get(TEXT, b"fragment1fragment2")
    yield "5-ping-in-fragments", fails(Send(frame(PING, b"a", fin=False) + frame(CONT, b"b")))
    yield "5-pong-in-fragments", fails(Send(frame(PONG, b"a", fin=False) + frame(CONT, b"b")))
    yield "5-close-in-fragments", fails(Send(frame(CLOSE, b"\x03", fin=False) + frame(CONT, b"\xe8")))
    for step in (0, 1):
        by = f"-by-{step}" if step else ""
        yield f"5-two{by}", ends_well(Send(first + second, step), whole)
        between = first + frame(PING, b"ping") + second
        yield f"5-ping-between{by}", ends_well(Send(between, step), Get(PONG, b"ping"), whole)
        yield f"5-pong-between{by}", ends_well(Send(first + frame(PONG, b"p") + second, step), whole)
        stray = frame(CONT, b"stray")
        yield f"5-stray-end{by}", fails(Send(stray + frame(TEXT, HELLO), step))
        yield f"5-stray-middle{by}", fails(Send(frame(CONT, b"stray", fin=False) + frame(TEXT, HELLO), step))
        yield f"5-end-twice{by}", fails(Send(first + second, step), whole, Send(stray, step))
        yield f"5-text-in-a-text{by}", fails(Send(first + frame(TEXT, b"other"), step))
        yield f"5-binary-in-a-text{by}", fails(Send(first + frame(BINARY, b"other"), step))
    yield "5-separate-writes", ends_well(Send(first), Send(second), whole)
    five = [b"fragment%d" % number for number in range(1, 6)]
    for opcode, name in ((TEXT, "text"), (BINARY, "binary")):
        parts = fragments(opcode, five)
        back = Get(opcode, b"".join(five))
        yield f"5-five-{name}", ends_well(Send(b"".join(parts)), back)
        with_pings = b"".join(part + frame(PING, b"p%d" % at) for at, part in enumerate(parts[:-1]))
        pongs = [Get(PONG, b"p%d" % at) for at in range(4)]
        yield f"5-five-{name}-pings", ends_well(Send(with_pings + parts[-1]), *pongs, back)
        yield f"5-five-{name}-pings-by-1", ends_well(Send(with_pings + parts[-1], 1), *pongs, back)
        empties = b"".join(fragments(opcode, [b"", b"", b""]))
        yield f"5-empty-{name}", ends_well(Send(empties), Get(opcode))
        mixed = b"".join(fragments(opcode, [b"", b"middle", b""]))
        yield f"5-middle-{name}", ends_well(Send(mixed), Get(opcode, b"middle"))
        many = b"".join(fragments(opcode, [b"%d," % number for number in range(300)]))
        yield f"5-300-{name}", ends_well(Send(many), Get(opcode, b"".join(b"%d," % n for n in range(300))))
    yield "5-two-messages", ends_well(Send(first + second + first + second), whole, whole)
    yield "5-close-in-a-text", fails(Send(first + closing(1000)))


GOOD_TEXTS = {
    "kosme": "κόσμε",
    "nul": "a\x00b",
    "last-1": "\x7f",
    "first-2": "\x80",
    "last-2": "\u07ff",
    "first-3": "\u0800",
    "before-surrogates": "\ud7ff",
    "after-surrogates": "\ue000",
    "replacement": "\ufffd",
    "noncharacter-fffe": "\ufffe",
    "last-3": "\uffff",
    "first-4": "\U00010000",
    "emoji": "👩‍👩‍👧‍👦",
    "noncharacter-4": "\U0001fffe",
    "last-of-all": "\U0010ffff",
    "bom": "\ufeffafter",
}
BAD_TEXTS = {
    "alone-80": b"\x80",
    "alone-bf": b"\xbf",
    "two-alone": b"\x80\xbf",
    "seven-alone": b"\x80\xbf\x80\xbf\x80\xbf\x80",
    "all-64-alone": bytes(range(0x80, 0xC0)),
    "start-2-space": b"\xc3 ",
    "start-3-space": b"\xe2 ",
    "start-4-space": b"\xf0 ",
    "short-2": b"\xc3",
    "short-3": b"\xe2\x82",
    "short-4": b"\xf0\x9f\x98",
    "start-5": b"\xf8\x88\x80\x80\x80",
    "start-6": b"\xfc\x84\x80\x80\x80\x80",
    "fe": b"\xfe",
    "ff": b"\xff",
    "fe-fe-ff-ff": b"\xfe\xfe\xff\xff",
    "overlong-slash-2": b"\xc0\xaf",
    "overlong-slash-3": b"\xe0\x80\xaf",
    "overlong-slash-4": b"\xf0\x80\x80\xaf",
    "overlong-7f": b"\xc1\xbf",
    "overlong-7ff": b"\xe0\x9f\xbf",
    "overlong-ffff": b"\xf0\x8f\xbf\xbf",
    "overlong-nul-2": b"\xc0\x80",
    "overlong-nul-3": b"\xe0\x80\x80",
    "surrogate-first": b"\xed\xa0\x80",
    "surrogate-last": b"\xed\xbf\xbf",
    "surrogate-pair": b"\xed\xa0\x80\xed\xb0\x80",
    "past-the-last": b"\xf4\x90\x80\x80",
    "far-past": b"\xf7\xbf\xbf\xbf",
    "bad-in-the-middle": "κόσμε".encode() + b"\xed\xa0\x80" + b"edited",
    "latin-1": "café".encode("latin-1"),
}


def utf8() -> Iterator[tuple[str, Case]]:
    """6: texts are UTF-8, also when a character is cut by frames; each fragment is judged as it comes."""
    for name, text in GOOD_TEXTS.items():
        payload = text.encode()
        yield f"6-good-{name}", echoed(TEXT, payload)
        singly = b"".join(fragments(TEXT, in_pieces(payload, 1)))
        yield f"6-good-{name}-a-frame-each", ends_well(Send(singly), Get(TEXT, payload))
    for name, payload in BAD_TEXTS.items():
        yield f"6-bad-{name}", fails(Send(frame(TEXT, payload)), code=BAD_DATA)
        singly = b"".join(fragments(TEXT, in_pieces(payload, 1)))
        yield f"6-bad-{name}-a-frame-each", fails(Send(singly), code=BAD_DATA)
        yield f"6-bad-{name}-as-binary", echoed(BINARY, payload)
    good = "κόσμε".encode()
    early = frame(TEXT, good + b"\xf4\x90\x80\x80", fin=False)
    yield "6-bad-before-the-last-fragment", fails(Send(early), code=BAD_DATA)
    yield (
        "6-bad-in-the-second-fragment",
        fails(
            Send(frame(TEXT, good, fin=False)), Send(frame(CONT, b"\xed\xa0\x80", fin=False)), code=BAD_DATA
        ),
    )
    yield (
        "6-cut-character-never-finished",
        fails(Send(frame(TEXT, good + b"\xe2\x82", fin=False) + frame(CONT, b"")), code=BAD_DATA),
    )
    yield (
        "6-good-then-bad",
        fails(Send(frame(TEXT, good)), Get(TEXT, good), Send(frame(TEXT, b"\xff")), code=BAD_DATA),
    )
    large = "é".encode() * 40000
    cut = b"".join(fragments(TEXT, in_pieces(large, 1301)))
    yield "6-large-cut-in-characters", ends_well(Send(cut), Get(TEXT, large))


GOOD_CODES = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4001, 4409, 4999)
BAD_CODES = (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535)


def closes() -> Iterator[tuple[str, Case]]:
    """7: closing, well and badly."""
    yield "7-hello-then-close", ends_well(Send(frame(TEXT, HELLO)), Get(TEXT, HELLO))
    yield "7-close-twice", [Send(closing(1000) + closing(1000)), Get(CLOSE, code=1000)]
    yield "7-ping-after-close", [Send(closing(1000) + frame(PING)), Get(CLOSE, code=1000)]
    yield "7-text-after-close", [Send(closing(1000) + frame(TEXT, HELLO)), Get(CLOSE, code=1000)]
    yield "7-megabyte-after-close", [Send(closing(1000) + b"x" * 100000), Get(CLOSE, code=1000)]
    yield "7-empty", [Send(closing()), Get(CLOSE)]
    yield "7-one-byte", fails(Send(frame(CLOSE, b"a")))
    yield "7-by-1", [Send(closing(1000, b"goodbye"), 1), Get(CLOSE, code=1000)]
    for length in (1, 2, 10, 122, 123):
        yield f"7-reason-{length}", [Send(closing(1000, b"*" * length)), Get(CLOSE, code=1000)]
    yield "7-reason-124", fails(Send(closing(1000, b"*" * 124)))
    yield "7-reason-utf8", [Send(closing(1000, HELLO)), Get(CLOSE, code=1000)]
    for name in ("alone-80", "overlong-slash-2", "surrogate-first", "short-3", "past-the-last"):
        yield f"7-reason-{name}", fails(Send(closing(1000, BAD_TEXTS[name])), code=BAD_DATA)
    for code in GOOD_CODES:
        yield f"7-code-{code}", [Send(closing(code)), Get(CLOSE, code=code)]
    for code in BAD_CODES:
        yield f"7-code-{code}", fails(Send(closing(code)))


def limits() -> Iterator[tuple[str, Case]]:
    """9: large messages up to the limit, and one byte past it."""
    for opcode, name in ((TEXT, "text"), (BINARY, "binary")):
        payload = b"*" if opcode == TEXT else b"\xfe"
        for size in (64 * 1024, 256 * 1024, LIMIT):
            yield f"9-{name}-{size}", echoed(opcode, payload * size)
        for size, piece in ((LIMIT, 64 * 1024), (LIMIT, 4096), (65536, 64), (256 * 1024, 1024)):
            parts = b"".join(fragments(opcode, in_pieces(payload * size, piece)))
            yield f"9-{name}-{size}-in-frames-of-{piece}", ends_well(Send(parts), Get(opcode, payload * size))
        for step in (1024, 1300, 65536):
            yield f"9-{name}-{LIMIT}-by-{step}", echoed(opcode, payload * LIMIT, step)
        yield f"9-{name}-too-big", fails(Send(frame(opcode, payload * (LIMIT + 1))), code=TOO_BIG)
        parts = b"".join(fragments(opcode, in_pieces(payload * (LIMIT + 1), 65536)))
        yield f"9-{name}-too-big-in-frames", fails(Send(parts), code=TOO_BIG)
        first = 0x80 | opcode
        for length in (LIMIT + 1, 2**32, 2**63 - 1):
            head = bytes([first, 0xFF]) + struct.pack("!Q", length) + bytes(4)
            yield f"9-{name}-announces-{length}", fails(Send(head), code=TOO_BIG)


def refragmentation() -> Iterator[tuple[str, Case]]:
    """10: a message comes back whole, however it was cut."""
    for size, piece in ((65536, 1300), (65536, 1), (1024, 1)):
        if size * 7 // piece > 200000 and piece == 1:
            size = 4096
        payload = b"*" * size
        parts = b"".join(fragments(TEXT, in_pieces(payload, piece)))
        yield f"10-{size}-in-frames-of-{piece}", ends_well(Send(parts), Get(TEXT, payload))


SECTIONS = (
    framing,
    pings,
    reserved_bits,
    opcodes,
    fragmentation,
    utf8,
    closes,
    limits,
    refragmentation,
)
CASES: dict[str, Case] = {name: case for section in SECTIONS for name, case in section()}
