"""A scratch root with everything that install.sh puts there in a moment."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from unit_files import ROOT

SYSTEMS_UNITS = Path("/usr/lib/systemd/system"), Path("/lib/systemd/system")  # sysinit.target and its like


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A root with units, rule and configuration, without a Python environment (that takes minutes)."""
    root = tmp_path_factory.mktemp("root")
    subprocess.run([ROOT / "systemd/install.sh", "--root", root, "--no-venv"], check=True, capture_output=True)
    python = root / "opt/companion/current/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")  # in place of the environment: systemd-analyze looks whether it can be run
    os.chmod(python, 0o755)
    if folder := next((folder for folder in SYSTEMS_UNITS if folder.is_dir()), None):
        shutil.copytree(folder, root / "usr/lib/systemd/system", symlinks=True)
    return root
