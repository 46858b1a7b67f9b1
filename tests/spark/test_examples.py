"""Scripts of `examples/` that use Spark, in the session that is running."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.usefixtures("spark")
def test_spark_format(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "spark_format.py"))
    *shops, result = capsys.readouterr().out.splitlines()
    assert shops == [f"shop-{number}: 1250 orders" for number in range(4)]
    assert result == "every order is in the table once"
