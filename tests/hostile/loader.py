"""Run by a test in a process of its own: load files, tell what each did to time and memory.

Usage: python loader.py GOOD_MODEL FOLDER; prints one JSON line before and after each file. Names of
states begin with "state-".
"""

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import skops.io  # noqa: F401  (what libraries take is no fault of a file)

from leansvm import persistence


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def attempt(function, path: Path) -> str:
    try:
        function(path)
    except BaseException as error:
        ours = isinstance(error, persistence.ModelFileError | persistence.StateError)
        return f"{'refused' if ours else type(error).__name__}: {error}"
    return "taken"


def main(good: Path, folder: Path) -> None:
    persistence.load(good).predict(np.zeros((1, 4)))
    persistence.trusted_types()
    warm = peak()
    for path in sorted(folder.iterdir()):
        print(json.dumps({"file": path.name}), flush=True)
        start = time.process_time()  # of the processor: others may be busy
        if path.name.startswith("state-"):
            facts = model = attempt(persistence.FitState.load, path)
        else:
            facts = attempt(persistence.read_metadata, path)
            model = attempt(persistence.load, path)
        seconds = time.process_time() - start
        found = {"facts": facts, "model": model, "seconds": seconds, "bytes": peak() - warm}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
