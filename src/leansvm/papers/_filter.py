"""Show only the rows of one verdict: buttons and CSS, no script."""

from __future__ import annotations

from leansvm.papers._verdict import Verdict

_ALL = "all"
_CHOICES = (
    Verdict.REACHED,
    Verdict.WITHIN,
    Verdict.SHORT,
    Verdict.MEASURED,
    Verdict.QUOTED,
    Verdict.NOT_RUN,
)


def slug(verdict: Verdict) -> str:
    """Return the verdict as a name for CSS; what failed was not run."""
    return "not-run" if verdict == Verdict.FAILED else str(verdict).replace(" ", "-")


def filter_buttons() -> str:
    """Return one button for each verdict, and one for all rows."""
    names = [(_ALL, "all")] + [(slug(verdict), str(verdict)) for verdict in _CHOICES]
    buttons = "".join(
        f'<label><input type="radio" name="verdict" id="show-{name}"'
        f"{' checked' if name == _ALL else ''}> {text}</label>"
        for name, text in names
    )
    return f'<fieldset class="filter"><legend>Show rows</legend>{buttons}</fieldset>'


def filter_style() -> str:
    """Return the rules that hide other rows, and tables and figures that have none."""
    rules = [
        ".filter { display: flex; flex-wrap: wrap; gap: .3rem 1rem; margin: 1.2rem 0;",
        "border: 1px solid var(--line); border-radius: 10px; padding: .4rem .9rem .6rem; }",
        ".filter legend { color: var(--soft); font-size: .85rem; padding: 0 .3rem; }",
        ".filter label { white-space: nowrap; cursor: pointer; }",
    ]
    for verdict in _CHOICES:
        name = slug(verdict)
        chosen = f"body:has(#show-{name}:checked)"
        rules.append(f'{chosen} tr[data-verdict]:not([data-verdict="{name}"]),')
        rules.append(f'{chosen} .block:not([data-verdicts~="{name}"]) {{ display: none; }}')
    return "\n".join(rules) + "\n"
