"""Tests that need something that this machine lacks."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def skip(requirement: str, required: bool = True) -> NoReturn:
    """Skips the running test, and adds it to the list of skipped tests. Fails if it is required, and `CI=true`."""
    if required and os.environ.get("CI") == "true":
        pytest.fail(f"this test needs {requirement}, and CI=true")
    if "WORKSPACE_TEST_SKIPPED" in os.environ:
        test = os.environ["PYTEST_CURRENT_TEST"].split("::")[-1].split(" ")[0]
        with open(os.environ["WORKSPACE_TEST_SKIPPED"], "a") as skipped:
            skipped.write(f"sdk-python {test}: needs {requirement}\n")
    pytest.skip(f"needs {requirement}")
