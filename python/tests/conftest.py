"""Multifiles that SIONlib wrote, with what is in them, and containers of real runs."""

import hashlib
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

import kakehi

GOLDEN = pathlib.Path(__file__).parents[2] / "multifile" / "rust" / "tests" / "golden"


def cases(**wanted):
    """Cases of the manifest whose files are stored as they are."""
    if not GOLDEN.is_dir():
        return []
    manifest = json.loads((GOLDEN / "manifest.json").read_text())
    found = manifest["cases"] if isinstance(manifest, dict) else manifest
    stored = [
        case
        for case in found
        if all((GOLDEN / file["name"]).is_file() for file in case["files"])
        and not any("BUDDY" in file["name"] for file in case["files"][:1])
    ]
    return [case for case in stored if all(case.get(key) == value for key, value in wanted.items())]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def golden(tmp_path):
    """A copy of the golden files."""
    return pathlib.Path(shutil.copytree(GOLDEN, tmp_path / "golden"))


@pytest.fixture(scope="session")
def container(tmp_path_factory):
    """A container that a run with --coalesce made, with folders, links, and an empty file."""
    try:
        command = kakehi.command()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("container")
    program = (
        "import os; os.makedirs('out/deep');"
        "open('out/a.txt', 'w').write('first');"
        "open('out/deep/b.bin', 'wb').write(bytes(range(256)) * 1000);"
        "open('empty', 'w').close(); os.symlink('out/a.txt', 'link')"
    )
    (folder / "work").mkdir()
    subprocess.run(
        [
            command,
            "run",
            "--coalesce",
            f"{folder}/work={folder}/run.kakehi",
            "--",
            sys.executable,
            "-c",
            f"import os; os.chdir({str(folder / 'work')!r}); {program}",
        ],
        check=True,
        timeout=120,
    )
    return folder / "run.kakehi"
