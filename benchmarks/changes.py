"""What changed since an earlier revision: ``python -m benchmarks.changes [REVISION]``.

Compares the targets in ``results/*.json`` with those that git has in REVISION (``HEAD`` unless
told), and names what became worse by more than a tenth. Targets are ratios of one run, so a slower
machine does not count as a change, noise of a tenth still does: run such a benchmark again.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._harness import RESULTS, print_table

TOLERANCE = 1.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of all targets, before and now; return 1 when one became worse."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    revision = given[0] if given else "HEAD"
    rows = [row for path in sorted(RESULTS.glob("*.json")) for row in _changes(path, revision)]
    print_table(rows)
    worse = [row for row in rows if row["verdict"] == "WORSE"]
    print(f"\n{len(worse)} of {len(rows)} targets worse than in {revision} by more than a tenth")
    return int(bool(worse))


def _changes(path: Path, revision: str) -> list[dict[str, Any]]:
    now = json.loads(path.read_text(encoding="utf-8"))
    before = _earlier(path, revision)
    if before is None or "targets" not in now or now.get("quick"):
        return []
    earlier = {target["what"]: target["measured"] for target in before["targets"]}
    return [
        {
            "benchmark": now["benchmark"],
            "target": target["what"],
            "before": earlier[target["what"]],
            "now": target["measured"],
            "goal": target["goal"],
            "verdict": verdict(earlier[target["what"]], target["measured"], target["goal"]),
        }
        for target in now["targets"]
        if target["what"] in earlier
    ]


def _earlier(path: Path, revision: str) -> dict[str, Any] | None:
    """Return the file's content in `revision`; None where that has no such file."""
    name = f"{revision}:./{path.name}"
    found = subprocess.run(["git", "show", name], cwd=path.parent, capture_output=True, check=False)
    return json.loads(found.stdout) if found.returncode == 0 else None


def verdict(before: str, now: str, goal: str) -> str:
    """Return "WORSE", "better" or "same" for two measurements of one goal."""
    if not goal.startswith((">=", "<=")):
        return "same" if before == now else "WORSE" if now != goal else "better"
    old, new = float(before), float(now)
    if goal.startswith(">="):
        old, new = -old, -new
    # a tenth of next to nothing is no change: at least half of the goal is what it is a tenth of
    allowed = (TOLERANCE - 1) * max(abs(old), 0.5 * abs(float(goal[2:])))
    if abs(new - old) <= allowed:
        return "same"
    return "WORSE" if new > old else "better"


if __name__ == "__main__":
    sys.exit(main())
