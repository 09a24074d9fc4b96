"""Where the tests of this folder find the repository's files and the shared data."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VEHICLES, SCENARIOS, MISSIONS = ROOT / "config/vehicles", ROOT / "config/scenarios", ROOT / "config/missions"
BOARDS, BENCHES = ROOT / "config/boards", ROOT / "config/benches"
F550 = VEHICLES / "f550.toml"

SHARED = Path(os.environ.get("COMPANION_SHARED_DATA", ROOT.parent / "shared/data"))


def needs_shared_data(folder: str) -> pytest.MarkDecorator:
    """Skips a test, or a module as its `pytestmark`, without a folder of the shared data."""
    reason = f"needs {SHARED / folder} (another place: COMPANION_SHARED_DATA)"
    return pytest.mark.skipif(not (SHARED / folder).is_dir(), reason=reason)
