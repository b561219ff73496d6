"""
WebSocket frames of one connection: bytes in, ASGI messages out, messages in, bytes out.

`websockets` (its sans-I/O `Protocol`) decides everything about the protocol. Only the plain frame, whole, masked
and unfragmented, which is nearly all of the traffic, is read and written here without it: 1 us instead of 8.
"""

import codecs
from typing import Any, cast

from websockets.frames import BINARY, CLOSE, CONT, TEXT, Close, CloseCode, Frame
from websockets.protocol import OPEN, SERVER, Protocol

try:
    from websockets.speedups import apply_mask
except ImportError:  # a build without its C extension
    from websockets.utils import apply_mask

Message = dict[str, Any]

WHOLE_TEXT, WHOLE_BINARY = 0x81, 0x82  # first byte of an unfragmented frame with no reserved bit
MASKED, MASKED_16, MASKED_64 = 0x80, 0xFE, 0xFF  # second byte: a mask, and a length of 7, 16 or 64 bits
LONGEST_REASON = 123  # bytes of UTF-8 in a close frame
SHORT_TEXT_HEADS = [bytes((WHOLE_TEXT, length)) for length in range(126)]


class Frames:
    """Reads and writes the frames of one open connection."""

    __slots__ = ("_decoder", "_owed", "_parts", "_tail", "max_bytes", "protocol")

    def __init__(self, max_bytes: int) -> None:
        """
        Args:
            max_bytes: Of one message, whatever the number of its frames.
        """
        self.protocol = Protocol(SERVER, max_size=max_bytes)
        self.max_bytes = max_bytes
        self._tail = b""  # the beginning of a frame whose head is not complete
        self._owed = 0  # bytes still to come of a frame that `protocol` has begun
        self._parts: list[Any] | None = None  # of a fragmented message
        self._decoder: codecs.IncrementalDecoder | None = None  # of a fragmented text

    def receive(self, data: bytes, room: int) -> list[Message]:
        """
        Take bytes from the peer; the messages they complete. What must be answered is in `pending()`.

        Args:
            data: May be empty, to go on with what is left.
            room: After this many messages stop, and keep the rest of the bytes for the next call.
        """
        messages: list[Message] = []
        if self._tail:
            data = self._tail + data
            self._tail = b""
        position, end = 0, len(data)
        while position < end and len(messages) < room:
            if self._owed:
                stop = min(position + self._owed, end)
                self._owed -= stop - position
                self._hand_over(data[position:stop], messages)
                position = stop
                if self.protocol.eof_sent:
                    return messages  # whatever follows a close or an error is nothing
                continue
            if self._parts is None and self.protocol.state is OPEN:
                position = self._read_plain(data, position, room, messages)
                if position == end or len(messages) == room:
                    break
            length = _frame_length(data, position)
            if length is None:
                break
            self._owed = length
        self._tail = data[position:]
        return messages

    def _read_plain(self, data: bytes, position: int, room: int, messages: list[Message]) -> int:
        """Read whole, masked, unfragmented texts from `position` on; where the first other thing begins."""
        end, most = len(data), self.max_bytes
        left = room - len(messages)
        try:
            while left and data[position] == WHOLE_TEXT:
                second = data[position + 1]
                if MASKED <= second < MASKED_16:
                    start = position + 6
                    stop = start + second - MASKED
                elif second == MASKED_16:
                    start = position + 8
                    stop = start + (data[position + 2] << 8 | data[position + 3])
                else:
                    break
                if stop > end or stop - start > most:
                    break
                text = str(apply_mask(data[start:stop], data[start - 4 : start]), "utf-8")
                messages.append({"type": "websocket.receive", "text": text})
                position = stop
                left -= 1
        except IndexError:  # the end of the data, or of a head that is not complete
            pass
        except UnicodeDecodeError:
            self.protocol.fail(CloseCode.INVALID_DATA, "invalid UTF-8")
            return end
        return position

    @property
    def left(self) -> bool:
        """Whether bytes wait that a call with room may turn into messages."""
        return bool(self._tail)

    def text(self, text: str) -> bytes:
        """
        One text message as bytes for the peer.

        Raises:
            UnicodeEncodeError: If the text holds a lone surrogate.
        """
        payload = text.encode()
        length = len(payload)
        if length < 126:
            return SHORT_TEXT_HEADS[length] + payload
        return _head(WHOLE_TEXT, length) + payload

    def binary(self, payload: bytes) -> bytes:
        """One binary message as bytes for the peer."""
        return _head(WHOLE_BINARY, len(payload)) + payload

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.protocol.send_ping(b"")

    def close(self, code: int, reason: str) -> None:
        """
        Begin the closing handshake; a reason that is too long is cut at a character.

        Raises:
            ValueError: If the code may not be sent.
        """
        reason = reason.encode()[:LONGEST_REASON].decode(errors="ignore")
        close = Close(code, reason)
        try:
            close.check()
        except Exception as problem:
            raise ValueError(f"{code} is not a close code") from problem
        self.protocol.send_close(code, reason)

    def pending(self) -> tuple[bytes, bool]:
        """What the protocol itself wants to send, and whether nothing may follow it."""
        writes = self.protocol.data_to_send()
        return b"".join(writes), b"" in writes

    def closed(self) -> tuple[int, str] | None:
        """Code and reason of the end, as soon as it is known: the peer's, or else ours for its error."""
        close = self.protocol.close_rcvd
        if close is None and self.protocol.eof_sent:
            close = self.protocol.close_sent
        return (int(close.code), close.reason) if close is not None else None

    def _hand_over(self, data: bytes, messages: list[Message]) -> None:
        """Let `protocol` read a frame, or a part of one."""
        self.protocol.receive_data(data)
        for frame in cast(list[Frame], self.protocol.events_received()):
            if frame.opcode is TEXT or frame.opcode is BINARY or frame.opcode is CONT:
                self._add(frame, messages)
            elif frame.opcode is CLOSE:
                self._parts = self._decoder = None

    def _add(self, frame: Frame, messages: list[Message]) -> None:
        """Add a data frame to its message; UTF-8 is judged at each fragment, not only at the end."""
        if self._parts is None:
            self._parts = []
            self._decoder = codecs.getincrementaldecoder("utf-8")() if frame.opcode is TEXT else None
        if self._decoder is None:
            self._parts.append(bytes(frame.data))
        else:
            try:
                self._parts.append(self._decoder.decode(frame.data, frame.fin))
            except UnicodeDecodeError:
                self._parts = self._decoder = None
                if self.protocol.state is OPEN:
                    self.protocol.fail(CloseCode.INVALID_DATA, "invalid UTF-8")
                return
        if frame.fin:
            if self._decoder is None:
                messages.append({"type": "websocket.receive", "bytes": b"".join(self._parts)})
            else:
                messages.append({"type": "websocket.receive", "text": "".join(self._parts)})
            self._parts = self._decoder = None


def _frame_length(data: bytes, position: int) -> int | None:
    """Bytes of the frame that begins here, head included; None as long as its head is not complete."""
    if len(data) - position < 2:
        return None
    second = data[position + 1]
    if second < MASKED:
        return 2  # the protocol will refuse it: a client's frames are masked
    if second < MASKED_16:
        return 6 + second - MASKED
    size = 2 if second == MASKED_16 else 8
    if len(data) - position < 6 + size:
        return None
    return 6 + size + int.from_bytes(data[position + 2 : position + 2 + size], "big")


def _head(first: int, length: int) -> bytes:
    """The head of an unmasked frame."""
    if length < 126:
        return bytes((first, length))
    if length < 65536:
        return bytes((first, 126)) + length.to_bytes(2, "big")
    return bytes((first, 127)) + length.to_bytes(8, "big")
