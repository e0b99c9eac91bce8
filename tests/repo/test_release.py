"""What is shipped: one version, every licence named, an archive that can be made again."""

import datetime
import hashlib
import os
import pathlib
import re
import shutil
import tarfile
import tomllib

import pytest
import yaml
from conventions import ROOT, repository
from terminal import call, commit, git

pytestmark = pytest.mark.slow

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
CHANGES = re.findall(
    r"^## \[([\d.]+)\] - ([\d-]+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
)
NOTICE = (ROOT / "NOTICE").read_text("utf-8")


def test_version_and_date_are_the_same_everywhere():
    version, day = CHANGES[0]
    assert version == CITATION["version"] == VERSION
    assert day == CITATION["date-released"] == datetime.date.fromisoformat(day).isoformat()


def test_the_changelog_keeps_its_form():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["[Unreleased]", *(f"[{v}] - {day}" for v, day in CHANGES)]
    numbers = [tuple(map(int, version.split("."))) for version, _ in CHANGES]
    assert sorted(numbers, reverse=True) == numbers
    linked = re.findall(r"^\[([^\]]+)\]: (\S+)$", text, re.MULTILINE)
    assert [name for name, _ in linked] == ["Unreleased", *(version for version, _ in CHANGES)]
    assert all(link.startswith(f"{repository()}/") for _, link in linked)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limits"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds


def test_the_citation_has_what_its_schema_asks_for():
    """Citation File Format 1.2.0, whose own program (cffconvert) accepted the file, too."""
    known = {"title", "message", "abstract", "type", "authors", "version", "date-released"}
    fixed = {"cff-version": "1.2.0", "license": "Apache-2.0", "repository-code": repository()}
    assert set(CITATION) == {*known, *fixed, "keywords"}
    assert fixed.items() <= CITATION.items()
    assert CITATION["type"] in ("software", "dataset")
    assert all(set(author) == {"name"} for author in CITATION["authors"])
    assert all(isinstance(CITATION[key], str) for key in ("message", "title", "version"))


# --- licences ----------------------------------------------------------------------------------

# Kinds of files that the course's authors write, and the folder of their pages. A file of another
# kind, and every file in a folder of data or pictures, needs its line in NOTICE.
WRITTEN = {".cff", ".ipynb", ".md", ".po", ".py", ".sh", ".toml", ".tsv", ".txt", ".yaml", ".yml"}
TEMPLATES = "helpers/base/templates/"
WRITTEN_NAMES = [".ci/release", ".ci/run", ".gitignore", "Makefile", "NOTICE"]
WRITTEN_NAMES += ["tests/browser/pytest.ini", "helpers/preflight/report.schema.json"]
WRITTEN_NAMES += ["helpers/course/lab/overrides.json"]
LISTED = re.findall(r"^  ([\w./-]*(?:/[\w.-]+|LICENSE))\s{2,}", NOTICE, re.MULTILINE)


def unnamed(files: list[str], listed: list[str]) -> list[str]:
    """Files that are neither of a kind that we write nor in the notice."""
    kinds = {name: pathlib.PurePath(name).suffix for name in {*files} - {*listed, *WRITTEN_NAMES}}
    return sorted(
        name
        for name, kind in kinds.items()
        if (re.search(r"(^|/)(data|images)/", name) and kind not in (".md", ".py"))
        or (kind not in WRITTEN and not name.startswith(TEMPLATES))
    )


def test_a_file_without_notice_is_seen():
    files = ["helpers/a.py", "helpers/font.woff2", "notebooks/data/b.yaml", "notebooks/data/c.py"]
    assert unnamed(files, ["LICENSE"]) == ["helpers/font.woff2", "notebooks/data/b.yaml"]
    assert unnamed(files, ["helpers/font.woff2", "notebooks/data/b.yaml"]) == []


def test_every_file_that_is_shipped_is_ours_or_named_in_the_notice():
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: which files are shipped is what git knows")
    assert unnamed(call("git", "ls-files").stdout.splitlines(), LISTED) == []
    # And what the notice names is there.
    assert len(LISTED) > 5
    assert [name for name in LISTED if not (ROOT / name).is_file()] == []
    mozilla = (ROOT / "notebooks/data/LICENSE").read_text("utf-8")
    assert mozilla.startswith("Mozilla Public License Version 2.0")
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")


# --- the archive -------------------------------------------------------------------------------

SBOM = """#!/bin/sh
for word; do [ "$before" != -o ] || out=$word; before=$word; done
echo "{\\"of\\": \\"$SOURCE_DATE_EPOCH\\"}" >"$out"
"""


SHIPPED = ["pyproject.toml", "CITATION.cff", "CHANGELOG.md", "requirements.txt"]
SHIPPED += [".gitignore", ".ci/release"]


class Repository:
    """A small repository with what a release reads, and a stand-in for the SBOM's program."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        (folder / ".ci").mkdir()
        for name in SHIPPED:
            shutil.copy(ROOT / name, folder / name)
        git(folder, "init", "-q", "-b", "main")
        commit(folder)
        (folder / ".git/cyclonedx-py").write_text(SBOM)
        (folder / ".git/cyclonedx-py").chmod(0o755)

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text("utf-8")
        assert old in text
        (self.folder / name).write_text(text.replace(old, new), "utf-8")

    def release(self) -> tuple[int, str]:
        environment = os.environ | {"TOOLS": str(self.folder / ".git")}
        done = call("sh", ".ci/release", cwd=self.folder, env=environment)
        return done.returncode, done.stdout + done.stderr

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.folder / "build/release").iterdir()}


@pytest.fixture
def repository_copy(tmp_path):
    return Repository(tmp_path)


def test_a_release_holds_the_commit_and_its_checksums(repository_copy):
    code, said = repository_copy.release()
    assert code == 0, said
    assert f"No tag yet: git tag v{VERSION}" in said
    name = f"tensorflow-on-tpu-{VERSION}"
    made = repository_copy.files()
    assert set(made) == {f"{name}.tar.gz", f"{name}.cdx.json", "SHA256SUMS"}
    for line in made["SHA256SUMS"].decode().splitlines():
        digest, file = line.split("  ")
        assert hashlib.sha256(made[file]).hexdigest() == digest
    with tarfile.open(repository_copy.folder / f"build/release/{name}.tar.gz") as archive:
        members = {m.name for m in archive.getmembers() if m.isfile()}
    assert members == {f"{name}/{file}" for file in SHIPPED}


def test_the_same_commit_makes_the_same_bytes(repository_copy):
    git(repository_copy.folder, "tag", f"v{VERSION}")
    assert repository_copy.release()[0] == 0
    first = repository_copy.files()
    for path in repository_copy.folder.rglob("*.*"):
        if ".git" not in path.parts:
            os.utime(path, (1, 1))
    code, said = repository_copy.release()
    assert code == 0, said
    assert "No tag yet" not in said
    assert repository_copy.files() == first


CITED = ("CITATION.cff", f"version: {VERSION}", "version: 9.9.9")
HEADED = ("CHANGELOG.md", f"## [{VERSION}] -", "## [9.9.9] -")
EDITED = ("CHANGELOG.md", "nine", "ten")


@pytest.mark.parametrize(
    ("tag", "change", "committed", "words"),
    [
        ("", EDITED, False, "changes that are not committed"),
        ("", CITED, True, f"CITATION.cff says version 9.9.9, pyproject.toml {VERSION}"),
        ("", HEADED, True, f"CHANGELOG.md has no '## [{VERSION}] - date'"),
        ("v9.9.9", None, False, "This commit has the tag v9.9.9"),
        (f"v{VERSION}", EDITED, True, f"The tag v{VERSION} stands at another commit"),
        ("", None, False, "changes that are not committed"),
    ],
    ids=["not committed", "citation", "changelog", "tag", "tag of another commit", "not in git"],
)
def test_a_release_is_refused_with_its_reason(repository_copy, tag, change, committed, words):
    if tag:
        git(repository_copy.folder, "tag", tag)
    if change:
        repository_copy.change(*change)
    if committed:
        commit(repository_copy.folder)
    if not tag and not change:
        (repository_copy.folder / "new.txt").write_text("x")
    code, said = repository_copy.release()
    assert (code, words in said) == (1, True), said
    assert len(said.splitlines()) == 1
    assert not (repository_copy.folder / "build/release").exists()


# --- the checks at each commit --------------------------------------------------------------------


def test_pre_commit_makes_the_checks_of_make_lint():
    settings = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    entries = " ".join(hook["entry"] for hook in settings["repos"][0]["hooks"])
    recipe = (ROOT / "Makefile").read_text("utf-8").split("\nlint:")[1].split("\n\n")[0]
    assert "spelling" in recipe
    for check in ("ruff check", "ruff format --check", "lint-imports", "spelling"):
        assert check in entries
        assert check in recipe
    assert "keeps_the_conventions" in entries
    source = (ROOT / "tests/repo/test_conventions.py").read_text("utf-8")
    assert "keeps_the_conventions" in source
