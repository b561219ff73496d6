"""Disks that fail, in the place of the real one."""

import os
from typing import Any

from django.core.files.storage import FileSystemStorage


class FailingDisk(FileSystemStorage):
    """Writes what it gets, then says that it could not."""

    def __init__(self, number: int, **options: Any) -> None:
        """`number` is the system's number of the error."""
        self.number = number
        super().__init__(**options)

    def _save(self, name: str, content: Any) -> str:
        super()._save(name, content)
        raise OSError(self.number, os.strerror(self.number))
