#!/usr/bin/env python
"""Django's launcher."""

import os
import sys

from hermes_site import sqlite
from hermes_site.serving import loop


def main() -> None:
    """Run one management command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hermes_site.settings")
    sqlite.install()
    if sys.argv[1:2] == ["serve"]:
        loop.use_uvloop()
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
