"""Torch code works on any device: fits on a fake one equal those on the CPU."""

from __future__ import annotations

import pytest
from torch.utils import backend_registration

from tools.gpu.checks import tests_row as row_of_tests


# Longer than ten seconds: every operation is dispatched in Python.
@pytest.mark.long
@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch cannot register a device in Python",
)
def test_fake_device_suite_passes():
    """Run in a process of its own, as ``make gpu`` does: torch cannot unregister a device."""
    row = row_of_tests("pretended", 900)
    assert row["passed"] > 35
    # CUDA graphs need a GPU.
    assert row == {"passed": row["passed"], "skipped": 2, "failed": 0, "exit": 0}
