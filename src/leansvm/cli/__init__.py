"""The command ``leansvm``: train, use and inspect models, get data, repeat the papers' tables."""

import gc
import sys

from leansvm._extras import needs


def main() -> None:
    """Run the command line; the entry point of the script ``leansvm``."""
    if sys.argv[1:2] in (["train"], ["tune"]):  # which `wait_for` follows
        gc.disable()  # else the interpreter looks through all that is loaded, again and again
    try:
        from leansvm.cli._app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(needs("the command leansvm", error.name, "cli"))
    try:
        app()
    finally:
        gc.freeze()  # else the interpreter looks through all that was loaded before it ends
