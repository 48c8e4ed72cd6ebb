"""A folder of the cache is complete or does not exist."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from odradek_peers.cache import filled_once, peers_home


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODRADEK_PEERS", str(tmp_path / "peers"))


def test_concurrent_callers_fill_a_folder_once() -> None:
    filled = []

    def fill(folder: Path) -> None:
        filled.append(folder)
        (folder / "jar").write_text("content")

    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: filled_once("thing", fill), range(8)))

    assert len(filled) == 1
    assert folders == {peers_home() / "thing"}
    assert (peers_home() / "thing" / "jar").read_text() == "content"


def test_a_folder_is_filled_again_after_a_failure() -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        filled_once("thing", fail)
    assert not (peers_home() / "thing").exists()

    whole = filled_once("thing", lambda folder: (folder / "jar").touch())
    assert [file.name for file in whole.iterdir()] == ["jar"]
