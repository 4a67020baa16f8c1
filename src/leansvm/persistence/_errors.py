"""What is wrong with a model file."""

from __future__ import annotations

from pathlib import Path


class ModelFileError(ValueError):
    """The file is not a model, is damaged, or comes from a newer version."""


class UntrustedTypesError(ModelFileError):
    """The model needs types that are neither ours nor scikit-learn's; `types` lists them."""

    def __init__(self, path: Path, types: list[str], *, saving: bool = False) -> None:
        self.types = types
        done = "Nothing was written" if saving else "Nothing was loaded"
        way_out = (
            "If they are yours, list them in trusted= here and when loading."
            if saving
            else "If you trust where the file comes from, list them in trusted=."
        )
        super().__init__(
            f"{path} needs types that leansvm does not know: {printable(', '.join(types))}. "
            f"{done}. {way_out}"
        )


def printable(text: str) -> str:
    """Return text of a file with control characters escaped: a terminal would obey them."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
