"""Fixtures of the tracker's tests."""

import pytest
import synthetic_view


@pytest.fixture
def f550():
    """The F550's vehicle file."""
    return synthetic_view.f550()
