"""What tests of tables share."""

import numpy as np

N = 40  # rows
CLASS_NAMES = np.array(["ant", "bee", "cat", ""])


def assert_features(data, frame, *names):
    assert data.columns == names
    np.testing.assert_allclose(data.X, frame[list(names)], rtol=1e-6)


def write(frame, path):
    """Write a table by its suffix."""
    {
        ".csv": frame.to_csv,
        ".parquet": frame.to_parquet,
        ".jsonl": lambda path: frame.to_json(path, orient="records", lines=True),
        ".xlsx": frame.to_excel,
    }[path.suffix](path)
    return path
