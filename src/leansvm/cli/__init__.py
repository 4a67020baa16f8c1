"""The command ``leansvm``: train, use and inspect models, get data, repeat the papers' tables."""

import gc
import sys

from leansvm._extras import needs


def main() -> None:
    """Run the command line; the entry point of the script ``leansvm``."""
    if sys.argv[1:2] in (["train"], ["tune"]):  # `wait_for` turns it on again
        gc.disable()  # or Python searches all loaded modules for garbage, again and again
    try:
        from leansvm.cli._app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(needs("the command leansvm", error.name, "cli"))
    try:
        app()
    finally:
        gc.freeze()  # or Python searches all loaded modules for garbage when it ends
