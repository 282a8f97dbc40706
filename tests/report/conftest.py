"""One small run for all tests of the report: training it takes longer than drawing it."""

import pytest
from report.small_runs import small_run

from geointerp.measures.analysis import Analysis
from geointerp.training.checkpoint import Run


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Analysis]:
    return small_run(tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Analysis]:
    return small_run(tmp_path_factory.mktemp("runs") / "hostile", relations=4, hostile=True, steps=40)
