"""Tables in several formats."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice
from tests.tables import N


@pytest.fixture
def frame(rng):
    """Two features, ``p`` and ``q``, and the label of forty rows."""
    return pd.DataFrame(rng.normal(size=(N, 2)), columns=["p", "q"]).assign(
        label=np.array(["cat", "dog", "eel", ""])[np.arange(N) % 4]
    )


@pytest.fixture(params=["csv", "parquet", "jsonl"])
def read(request, tmp_path):
    """Writes a table in a format, and reads it without warnings; ``doubts`` are in the summary."""

    def read(frame, **choice):
        path = tmp_path / f"t.{request.param}"
        if request.param == "csv":
            frame.to_csv(path)
        elif request.param == "jsonl":
            frame.reset_index().to_json(path, orient="records", lines=True, date_format="iso")
        else:
            index = pd.Index(frame.index.tolist(), name=frame.index.name)
            frame.set_axis(index).to_parquet(path)
        names = {k: (v,) if k in ("features", "ignore") else v for k, v in choice.items()}
        return read_dataset(path, Choice(**names))

    return read
