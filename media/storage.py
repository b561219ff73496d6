"""
Names to bytes, over Django's `storages["media"]`.

A name is made here from chance alone: nothing that a client says becomes part of a path.
"""

import asyncio
import errno
import os
import uuid
from collections.abc import AsyncIterator
from typing import BinaryIO

from django.core.files import File
from django.core.files.storage import Storage, storages

from hermes_site.errors import Gone, UploadFailed

PIECE_BYTES = 64 * 1024
"""What one read takes, and so what one download holds in memory."""

_FULL = {errno.ENOSPC, errno.EDQUOT}


class StorageFull(UploadFailed):
    """There is no room for the bytes."""

    status = 507


def upload_failed(error: OSError) -> UploadFailed:
    """What a client is told when bytes could not be written."""
    if error.errno in _FULL:
        return StorageFull("the server has no room left for this file; nothing of it was kept")
    return UploadFailed("the file could not be stored; nothing of it was kept")


def write(file: BinaryIO) -> str:
    """
    Store a file from its beginning, safe against a power cut, and return the name to find it by.

    Raises:
        UploadFailed: If it could not be stored; nothing is left behind then.
    """
    storage = _storage()
    key = uuid.uuid4().hex
    name = f"{key[:2]}/{key}"
    file.seek(0)
    try:
        # An upload that rests in a temporary file is moved where it can be, not copied.
        name = storage.save(name, file if isinstance(file, File) else File(file, name=name))
        _sync(storage, name)
    except OSError as error:
        storage.delete(name)
        raise upload_failed(error) from error
    return name


def delete(name: str) -> None:
    """Remove the bytes under a name; without any, nothing happens."""
    _storage().delete(name)


def exists(name: str) -> bool:
    """Whether there are bytes under a name."""
    return bool(name) and _storage().exists(name)


class Reader:
    """
    Part of a stored file, piece by piece, for a streaming answer; the event loop never waits for the disk.

    Close it, or let Django close it with the answer.
    """

    def __init__(self, name: str, start: int, stop: int) -> None:
        """
        Open the file at once, so that a lost one is told before the answer begins; this blocks.

        Raises:
            Gone: If there are no bytes under that name.
        """
        try:
            self._file = _storage().open(name, "rb")
            self._file.seek(start)
        except FileNotFoundError:
            raise Gone("the bytes of this file were lost") from None
        self._left = stop - start

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._left > 0:
            piece = await asyncio.to_thread(self._file.read, min(PIECE_BYTES, self._left))
            if not piece:
                raise EOFError("a stored file is shorter than its row says")
            self._left -= len(piece)
            yield piece

    def close(self) -> None:
        """Let the file go; more than once does no harm."""
        self._file.close()


def _storage() -> Storage:
    return storages["media"]


def _sync(storage: Storage, name: str) -> None:
    """Make a local file outlive a power cut, its place in the folders included; other storages see to it themselves."""
    try:
        path = storage.path(name)
    except NotImplementedError:
        return
    folder = os.path.dirname(path)
    for target in (path, folder, os.path.dirname(folder)):  # the folder may be as new as the file
        descriptor = os.open(target, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
