"""``python -m tests.licences`` prints the table of docs/third_party.md: every locked package with version and licence."""

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"


def locked() -> list[str]:
    """Names of the packages in the lock file, sorted."""
    return sorted(set(re.findall(r"^([a-z0-9][\w.-]*)==", LOCK.read_text(encoding="utf-8"), flags=re.M)))


def licence(name: str) -> tuple[str, str]:
    """(version, licence) as the installed package declares them; not installed on this platform: as such."""
    try:
        facts = metadata(name)
    except PackageNotFoundError:
        return "–", "not installed on this platform"
    declared = facts.get("License-Expression") or ""
    if not declared:
        classifiers = [c.rpartition(" :: ")[2] for c in facts.get_all("Classifier") or [] if c.startswith("License ::")]
        text = (facts.get("License") or "").strip().splitlines()
        declared = "; ".join(classifiers) or (text[0] if text else "")
    return facts["Version"], declared[:60] or "not declared"


def main() -> int:
    print("| package | version | licence |\n|---|---|---|")
    for name in locked():
        print("| {} | {} | {} |".format(f"`{name}`", *licence(name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
