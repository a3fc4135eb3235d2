"""What pyproject.toml, requirements.lock and environment.yml promise, held against one another.

A test has no package index; what was checked by hand is in the table of faults.
"""

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from paperlib.environment import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LINES = [
    line for line in (ROOT / "requirements.lock").read_text().splitlines() if line[:1] not in "#"
]
PINS = {
    canonicalize_name(r.name): str(r.specifier).removeprefix("==")
    for r in map(Requirement, LINES)
}


@pytest.mark.parametrize("text", [*PROJECT["dependencies"], *EXTRAS["dev"], *EXTRAS["slurm"]])
def test_the_lock_pins_every_direct_dependency_within_its_range(text):
    requirement = Requirement(text)
    if text in EXTRAS["slurm"] and requirement.name not in PINS:
        pytest.skip("for clusters only")
    assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)])
    assert any(s.operator in (">=", "==", "~=") for s in requirement.specifier), "no lower bound"


def test_the_pins_agree_with_what_each_package_asks_of_the_others():
    """What a resolver would check: by the metadata of the packages that are installed here."""
    assert len(PINS) == len(LINES) > 100  # each package once, with one version
    assert all(re.fullmatch(r"[\w.-]+(\[[\w,]+\])?==[^*,;]+(;.*)?", line) for line in LINES)
    checked, wrong = 0, []
    for name in PINS:
        try:
            asked = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue  # for other systems
        for requirement in asked:
            if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
                continue
            pin, checked = PINS.get(canonicalize_name(requirement.name)), checked + 1
            if pin is None and requirement.name.startswith(("nvidia", "cuda", "triton")):
                continue  # of torch's builds for GPUs, whose index the user chooses
            if pin is None or not requirement.specifier.contains(pin, prereleases=True):
                wrong.append(f"{name} asks for {requirement}, the lock has {pin}")
    assert not wrong and checked > 200


def test_the_conda_environment_is_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    assert pip == ["-r requirements.lock", "-e ."]  # no version of its own that could differ
    plain = [item for item in environment["dependencies"] if isinstance(item, str)]
    (python,) = [item for item in plain if item.startswith("python=")]
    assert set(plain) == {python, "pip"}
    version = python.removeprefix("python=")
    assert SpecifierSet(PROJECT["requires-python"]).contains(version)
    assert f"Python {version}" in (ROOT / "requirements.lock").read_text().splitlines()[0]
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = [step.get("with", {}) for job in ci["jobs"].values() for step in job["steps"]]
    assert [s["python-version"] for s in steps if "python-version" in s] == [version]


def test_this_python_is_one_that_is_promised():
    here = Version(".".join(map(str, sys.version_info[:3])))
    assert SpecifierSet(PROJECT["requires-python"]).contains(here)
