"""The published numbers: complete, and each with an experiment."""

import pytest

from leansvm.papers import PAPERS
from leansvm.papers._experiment import experiments_of
from leansvm.papers._published import explanations, paper
from leansvm.papers._verdict import metric

ROWS = {"fang2019": 45, "peng2016": 214, "zhou2013": 135, "zhou2016": 110, "joshi": 42}


@pytest.mark.parametrize("name", PAPERS)
def test_every_table_and_figure_has_an_experiment(name):
    experiments, sketches = experiments_of(name)
    tables = paper(name).tables
    assert set(experiments) == set(tables)
    assert set(sketches) == set(paper(name).figures)


@pytest.mark.parametrize("name", PAPERS)
def test_rows_are_unique_and_their_metrics_known(name):
    rows = [row for table in paper(name).tables.values() for row in table.rows]
    assert len(rows) == ROWS[name]
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        for known in row.published:
            metric(known)


def test_judged_tables_state_their_tolerance():
    for name in PAPERS:
        for table in paper(name).tables.values():
            judged = any(metric(m).better for row in table.rows for m in row.published)
            assert (table.tolerance is not None) == judged, (name, table.name)


def test_a_known_number():
    row = next(r for r in paper("peng2016").tables["table-4"].rows if r.method == "RLSSVM")
    assert row.name == "RLSSVM, Splice, kernel linear"
    assert row.published["test_accuracy"].mean == 83.33
    assert row.published["test_accuracy"].std == 0.68


def test_explanations_belong_to_rows():
    for entry in explanations():
        tables = [paper(entry["paper"]).tables[name] for name in entry["tables"]]
        keys = [row.key for table in tables for row in table.rows]
        for name, wanted in entry["match"].items():
            values = wanted if isinstance(wanted, list) else [wanted]
            assert set(values) <= {key.get(name) for key in keys}, entry
