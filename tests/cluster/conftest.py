"""The cluster that the tests of the port run against."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwright.cluster.local.store import LocalCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "state" / "store.db") as opened:
        yield opened
