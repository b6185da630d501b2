"""The command `gbun`. What it needs is imported when it runs, so that Ctrl-C shows no traceback even then."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from gbun.cli.application import app

        app()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None
