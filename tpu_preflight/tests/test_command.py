"""The command: what is typed wrong is answered in three lines, and each option is explained."""

import importlib
import os
import re
import subprocess
import sys

import pytest
from programs import ROOT

from tpu_preflight import command
from tpu_preflight.report import Item, Report
from tpu_preflight.subprocess_run import PythonForLibraries

README = (ROOT / "README.md").read_text("utf-8")


@pytest.fixture
def checks(monkeypatch):
    """Let the check take no time; gives the arguments of each."""
    calls = []

    def run_in_subprocess(name, targets, **options):
        calls.append((name, targets, options))
        options["progress"]("compiling")
        return Report(name, tuple(targets), (Item(1, "step", "pass", "compiles"),))

    monkeypatch.setattr(command, "run_in_subprocess", run_in_subprocess)
    return calls


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fractions:build"], "fractions is not the one in this folder"),
        (["my_model.py"], "names no function of a module"),
        (["json:build"], "json has no 'build'"),
        (["unittest.__main__:main"], "unittest.__main__ could not be imported"),  # it exits
        (["json:dumps"], "no data"),
        (["json:loads", "-t", "v9-8"], "'v9-8' is no type of TPU"),
        (["a:b", "--price", "1"], "no number of steps"),
        (["a:b", "--baseline", "nowhere.json"], "can't be read"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else None,
)
def test_what_is_typed_wrong_is_told_in_three_lines(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model.py").write_text("mine = 1\n")
    (tmp_path / "fractions.py").write_text("mine = 1\n")
    assert command.main(words) == 2
    output, errors = capsys.readouterr()
    lines = [line for line in errors.splitlines() if not line.startswith("preflight, ")]
    assert output == "", errors
    assert len(lines) == 3, errors
    what, why, fix = lines
    assert message in what
    assert why.startswith("  Why: ")
    assert fix.startswith("  Fix: ")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine = 1\n"] * 2


def test_a_file_named_like_pythons_is_for_the_learners_modules_alone(tmp_path, monkeypatch):
    learners, library = tmp_path / "learners", tmp_path / "library"
    for folder in (learners, library):
        folder.mkdir()
        (folder / f"imports_it_{folder.name}.py").write_text("import colorsys\n")
        monkeypatch.syspath_prepend(str(folder))
    (learners / "colorsys.py").write_text("mine = 1\n")
    monkeypatch.syspath_prepend(str(learners))
    finder = PythonForLibraries(str(learners))
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    for name, is_learners in (("library", False), ("learners", True)):
        monkeypatch.delitem(sys.modules, "colorsys", raising=False)
        module = importlib.import_module(f"imports_it_{name}")
        assert hasattr(module.colorsys, "mine") == is_learners


def test_what_nobody_foresaw_is_no_verdict(monkeypatch, capsys):
    def run_in_subprocess(*arguments, **options):
        raise KeyError("of ours")

    monkeypatch.setattr(command, "run_in_subprocess", run_in_subprocess)
    assert command.main(["m:f"]) == 2
    what, why, fix = capsys.readouterr().err.splitlines()
    assert "says nothing about your model" in what
    assert "KeyError: 'of ours'" in why
    assert "Fix: " in fix


@pytest.mark.parametrize(
    "words",
    [
        "",
        "a --steps 0",
        f"a --timeout {10**400}",
        "a --measured=h",
        "a --measured=nan",
        "a --measured=-5",
        "a --measured=inf",
        "a --measured=0ms",
        "a --json --html",
        "a --measured=5 --json",
        "a --html --measured=5",
    ],
)
def test_what_is_no_number_no_name_or_two_forms_is_refused_at_once(words, capsys):
    with pytest.raises(SystemExit) as raised:
        command.main(words.split())
    usage, message = capsys.readouterr().err.rsplit("error:", 1)
    assert raised.value.code == 2
    assert "usage: tpu-preflight" in usage
    assert re.search("is not|are required|not allowed with", message)


def test_each_option_stands_in_the_readme_and_the_help_is_in_groups(capsys):
    with pytest.raises(SystemExit):
        command.main(["--help"])
    text = capsys.readouterr().out
    options = set(re.findall(r"(?<![\w=-])--[a-z-]+", text)) - {"--help"}
    assert len(options) == 13
    for option in options:
        assert f"`{option}" in README
    headings = [
        "the TPU:",
        "more checks, which take longer:",
        "the price of a run",
        "the report:",
        "examples:",
        "exit status:",
    ]
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)


def test_targets_come_once_all_values_count_and_a_price_brings_a_profile(checks, capsys):
    words = "m:f -v -t v5e-8 -t v6e-8 -t v5e-8 --steps 9 --vary a=4 --vary b=x --vary a=6,8"
    assert command.main(words.split()) == 0
    ((name, targets, options),) = checks
    assert name == "m:f"
    assert targets == ["v5e-8", "v6e-8"]
    assert options["vary"] == {"a": [4, 6, 8], "b": ["x"]}
    assert options["profile"]
    assert options["timeout"] == 3 * command.SECONDS
    output, errors = capsys.readouterr()
    assert "✓ 1 step: compiles" in output
    assert re.fullmatch(r"preflight, +0 s: compiling\n", errors)


def test_a_reader_who_leaves_and_a_terminal_with_few_letters_do_no_harm(tmp_path):
    (tmp_path / "my_model.py").write_text("import math\n\n\ndef build():\n    return 1 / 0\n")
    tool = f"{sys.executable} -m tpu_preflight my_model:build"
    # One reader leaves after a letter; then nothing can be written: it ends quietly, or mute.
    line = f"{tool} 2>&1 | head -c 1; {tool} 2>&-; {tool} 2>/dev/full || exit $?"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "ascii"}
    process = subprocess.run(line, shell=True, cwd=tmp_path, env=environment, capture_output=True)
    assert (process.stdout, process.stderr, process.returncode) == (b"p", b"", 2)
