"""Code and pages use the terms of the glossary."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = tomllib.loads((Path(__file__).with_name("vocabulary.toml")).read_text(encoding="utf-8"))["word"]
SUFFIXES = (".py", ".c", ".h", ".md", ".j2", ".sh", ".service", ".conf", ".rules", ".env")
FOLDERS = ("companion", "acados_gen", "calibration", "sitl", "systemd", "config", "docs", "tests")
# Where the old words are the subject: the table itself, the aliases of old names, the history.
EXEMPT = {
    "tests/core/vocabulary.toml",
    "tests/core/test_vocabulary.py",
    "companion/core/aliases.py",
    "tests/core/test_aliases.py",
    "tests/recording/test_golden_logs.py",
    "docs/glossary.md",
    "docs/changelog.md",
    "docs/third_party.md",
}


def texts() -> dict[str, list[str]]:
    """Lines by path of all files that people read: sources, configuration, pages."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    wanted = [n for n in names if n == "README.md" or n.startswith(FOLDERS)]
    wanted = [n for n in wanted if n.endswith((*SUFFIXES, ".toml")) and n not in EXEMPT]
    return {n: (ROOT / n).read_text(encoding="utf-8").splitlines() for n in wanted if (ROOT / n).exists()}


TEXTS = texts() if (ROOT / ".git").exists() else {}


@pytest.mark.skipif(not TEXTS, reason="not a repository")
@pytest.mark.parametrize("word", WORDS, ids=lambda word: word["pattern"].split("|")[0])
def test_private_words_are_not_used(word):
    pattern = re.compile(rf"(?<![A-Za-z])(?:{word['pattern']})(?![a-z])", re.IGNORECASE)
    unless = [re.compile(expression) for expression in word.get("unless", [])]
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, lines in TEXTS.items()
        for number, line in enumerate(lines, 1)
        if pattern.search(line) and not any(expression.search(line) for expression in unless)
    ]
    assert not found, f"use {word['instead']}\n" + "\n".join(found[:40])
