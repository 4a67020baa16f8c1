"""What to say when a package of an extra is missing.

leansvm is installed from a checkout of its repository and is in no package index, so the command
is the one that works there.
"""

from __future__ import annotations


def needs(what: str, package: str, extra: str) -> str:
    """Return the sentence that names the missing package and the command that brings it.

    Examples
    --------
    >>> from leansvm._extras import needs
    >>> print(needs("plotting", "matplotlib", "plot"))
    plotting needs matplotlib: run `pip install '.[plot]'` in a checkout of leansvm
    """
    return f"{what} needs {package}: run `pip install '.[{extra}]'` in a checkout of leansvm"
