"""Build the parts of a release into `dist/`, and check them: sdist, wheel, bill of materials, image.

The wheel is built from the sdist, so the sdist is complete. The wheel is installed into a new environment: the bill of
materials (CycloneDX JSON) lists the packages of this environment, and its `odradek` command has to start. The image is
built if a container engine runs. Publishes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
TEST_SUPPORT = re.compile(
    r"(^|/)(tests?|simulation|zookeeper_double|compat_tests|bench|odradek_peers|odradek_stacks)/"
    r"|(^|/)(test_[^/]*|conftest)\.py$"
)
"""Files that only tests need."""
IN_SDIST = ("LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "pyproject.toml", "Makefile")
ENGINE_TIMEOUT_S = 20


class ReleaseError(Exception):
    """A part of the release fails its check."""


def wrong_in_wheel(files: Iterable[str], packages: Iterable[str]) -> list[str]:
    """Return what is wrong with a wheel's files: folders other than its packages, test support, a missing licence."""
    names = list(files)
    allowed = {PurePosixPath(package).name for package in packages}
    wrong = [f"{name} is only for tests" for name in names if TEST_SUPPORT.search(name)]
    for top in sorted({name.partition("/")[0] for name in names}):
        if top not in allowed and not top.endswith(".dist-info"):
            wrong.append(f"{top} is not one of the packages")
    for package in sorted(allowed):
        if f"{package}/__init__.py" not in names:
            wrong.append(f"{package} is missing")
        if f"{package}/py.typed" not in names:
            wrong.append(f"{package}/py.typed is missing: type checkers would ignore the package")
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        wrong.append("LICENSE is missing")
    return wrong


def wrong_in_sdist(files: Iterable[str]) -> list[str]:
    """Return what is wrong with an sdist's files; their paths leave out the sdist's top folder."""
    names = set(files)
    wrong = [f"{name} is missing" for name in IN_SDIST if name not in names]
    return wrong + [
        f"{name} is not a source file" for name in sorted(names) if "__pycache__" in name or ".venv/" in name
    ]


def wrong_in_bill(bill: dict[str, Any], wanted: Iterable[str]) -> list[str]:
    """Return what is wrong with a bill of materials: missing dependencies, components without a version."""
    components = bill.get("components", [])
    listed = {_normalized(each["name"]) for each in components}
    wrong = [f"{name} is not in the bill of materials" for name in sorted(set(map(_normalized, wanted)) - listed)]
    return wrong + [f"{each['name']} has no version" for each in components if not each.get("version")]


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(*command: object, timeout_s: float = 1200) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def _refuse(where: str, wrong: list[str]) -> None:
    if wrong:
        raise ReleaseError("\n".join([f"{where}:", *(f"  {each}" for each in wrong)]))


def _build(settings: dict[str, Any]) -> Path:
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT)
    (sdist,) = DIST.glob("*.tar.gz")
    (wheel,) = DIST.glob("*.whl")
    version = settings["project"]["version"]
    packages = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    with tarfile.open(sdist) as sdist_archive:
        _refuse(sdist.name, wrong_in_sdist(name.partition("/")[2] for name in sdist_archive.getnames()))
    with zipfile.ZipFile(wheel) as wheel_archive:
        _refuse(wheel.name, wrong_in_wheel(wheel_archive.namelist(), packages))
    if f"-{version}-" not in wheel.name:
        raise ReleaseError(f"{wheel.name} does not have version {version}")
    return wheel


def _bill_of_materials(wheel: Path, project: dict[str, Any]) -> Path:
    bill = DIST / f"odradek-{project['version']}.cdx.json"
    extras = "metrics,zookeeper"  # not spark: PySpark is the user's own
    with tempfile.TemporaryDirectory(prefix="odradek-release-") as folder:
        venv.create(folder, symlinks=True)
        python = Path(folder, "bin", "python")
        retry = ROOT / "tools" / "retry"
        _run(retry, sys.executable, "-m", "pip", "--python", python, "install", "-q", "--disable-pip-version-check",
             f"odradek[{extras}] @ {wheel.as_uri()}")  # fmt: skip
        printed = _run(Path(folder, "bin", "odradek"), "--version")
        if str(project["version"]) not in printed:
            raise ReleaseError(f"odradek --version prints {printed!r}, not {project['version']}")
        _run(sys.executable, "-m", "cyclonedx_py", "environment", python, "--pyproject", ROOT / "pyproject.toml",
             "--mc-type", "application", "--output-reproducible", "--output-format", "JSON", "--output-file", bill,
             "--validate")  # fmt: skip
    wanted = [re.split(r"[<>=!~;\[ ]", each)[0] for each in project["dependencies"]]
    _refuse(bill.name, wrong_in_bill(json.loads(bill.read_text()), wanted))
    return bill


def _image(version: str) -> str | None:
    """Build the image and return its name, or None if no container engine runs."""
    if shutil.which("docker") is None:
        return None
    try:
        _run("docker", "version", timeout_s=ENGINE_TIMEOUT_S)
    except (ReleaseError, subprocess.TimeoutExpired):
        return None
    name = f"odradek:{version}"
    _run("docker", "build", "--network", "host", "-q", "-t", name, "-f", ROOT / "docker" / "Dockerfile", ROOT)
    printed = _run("docker", "run", "--rm", name, "--version")
    if version not in printed:
        raise ReleaseError(f"{name} prints {printed!r}, not {version}")
    files = _run("docker", "run", "--rm", "--entrypoint", "find", name, "/opt/odradek", "-path", "*odradek*", "-name",
                 "*.py")  # fmt: skip
    ours = [file for file in files.splitlines() if "/opt/odradek/odradek" in file]
    _refuse(name, [f"{file} is only for tests" for file in ours if TEST_SUPPORT.search(file)])
    return name


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    shutil.rmtree(DIST, ignore_errors=True)
    try:
        wheel = _build(settings)
        _bill_of_materials(wheel, project)
        image = _image(project["version"])
    except ReleaseError as error:
        sys.exit(f"release: {error}")
    files = sorted(DIST.iterdir())
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in files]
    (DIST / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    for file in files:
        print(f"{file.relative_to(ROOT)} {file.stat().st_size} bytes")
    print(f"image {image}" if image else "no image: no container engine responds")


if __name__ == "__main__":
    main()
