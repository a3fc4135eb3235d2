"""Exit 0 if the Python that runs this has what requirements.lock asks for, else say what is not.

Standard library only, and fast: every make target runs it first.
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def problems(lock: Path) -> list[str]:
    """One line for each package of the lock that is missing or has another version."""
    found = []
    for line in lock.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#") or ";" in line:
            continue  # a line with a marker is for some systems only, and never imported by us
        name, wanted = line.strip().split("==")
        try:
            here = version(name).split("+")[0]  # 2.13.0+cpu is a build of 2.13.0
        except PackageNotFoundError:
            found.append(f"{name} is missing")
            continue
        if here != wanted:
            found.append(f"{name} is {here}, not {wanted}")
    return found


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 (any Python may run this)
        sys.exit(f"Python is {sys.version.split()[0]}, not 3.11 or newer")
    wrong = problems(Path(__file__).parent.parent / "requirements.lock")
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        sys.exit(", ".join(wrong[:3]) + more)
