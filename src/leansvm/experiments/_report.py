"""The report."""
from pathlib import Path
import os
def write_report(folder: str | os.PathLike[str]) -> Path:
    return Path(folder)/"report.html"
