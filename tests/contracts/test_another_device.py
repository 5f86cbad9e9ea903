"""Torch code works on any device: fits on a fake one equal those on the CPU."""

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
    reason="this torch cannot register a device in Python",
)
def test_fake_device_suite_passes():
    """Run in a process of its own: torch cannot unregister a device."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/elsewhere.py"],
        cwd=ROOT,
        env=os.environ | {"SSDML_DEVICE": "pretended"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "skipped" not in done.stdout
