from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from workspace_state import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened
