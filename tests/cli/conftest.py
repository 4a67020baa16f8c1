"""Commands in this process, which spares the start of an interpreter."""

import pytest


@pytest.fixture
def run(tmp_path, monkeypatch, short_search):
    """Return what runs a command in an empty folder; models do not search long."""
    from typer.testing import CliRunner

    from leansvm.cli._app import app

    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [str(value) for value in arguments])


@pytest.fixture
def empty_drawings(monkeypatch):
    """Make the figures of a report without rendering them, for tests of its words and numbers."""
    empty = '<svg xmlns="" viewBox="0 0 1 1"><metadata></metadata></svg>'
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda figure, file, **options: file.write(empty)
    )
