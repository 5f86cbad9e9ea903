"""What computes with torch forgets no device: on one that is pretended, it learns as on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration

ROOT = Path(__file__).parents[2]


# 20 s.
@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch has no devices that are written in Python",
)
def test_everything_learns_where_no_tensor_of_the_cpu_may_be_met():
    """In a process of its own, for torch never forgets a device."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/elsewhere.py"],
        cwd=ROOT,
        env=os.environ | {"SSDML_DEVICE": "pretended"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "skipped" not in done.stdout
