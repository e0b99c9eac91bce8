"""The command: what is typed wrong is told in three lines, and each option is explained."""

import os
import re
import subprocess
import sys

import pytest
from programs import ROOT

from tpu_preflight import command
from tpu_preflight.report import Item, Report

README = (ROOT / "README.md").read_text("utf-8")
ONE = ["a --json --html", "a --measured=5 --json", "a --html --measured=5"]
TIMES = [f"a --measured={word}" for word in ("h", "nan", "-5", "inf", "0ms")]


@pytest.fixture
def ready(monkeypatch):
    """A check that takes no time; gives what it was asked."""
    asked = []

    def apart(name, targets, **options):
        asked.append((name, targets, options))
        options["progress"]("compiling")
        return Report(name, tuple(targets), (Item(1, "step", "pass", "compiles"),))

    monkeypatch.setattr(command, "apart", apart)
    return asked


@pytest.mark.parametrize(
    ("words", "says"),
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
def test_what_is_typed_wrong_is_told_in_three_lines(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model.py").write_text("mine = 1\n")
    (tmp_path / "fractions.py").write_text("mine = 1\n")
    assert command.main(words) == 2
    out, err = capsys.readouterr()
    told = [line for line in err.splitlines() if not line.startswith("preflight, ")]
    assert out == "" and says in told[0] and len(told) == 3, err
    assert told[1].startswith("  Why: ") and told[2].startswith("  Fix: ")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine = 1\n"] * 2


def test_what_nobody_foresaw_is_no_verdict(monkeypatch, capsys):
    monkeypatch.setattr(command, "apart", lambda *_, **__: {}["of ours"])
    assert command.main(["m:f"]) == 2
    first, why, fix = capsys.readouterr().err.splitlines()
    assert "says nothing of your model" in first and "KeyError: 'of ours'" in why and "Fix: " in fix


@pytest.mark.parametrize("words", ["a --steps 0", "", f"a --timeout {10**400}", *TIMES, *ONE])
def test_what_is_no_number_no_name_or_two_forms_is_refused_at_once(words, capsys):
    with pytest.raises(SystemExit) as left:
        command.main(words.split())
    usage, said = capsys.readouterr().err.rsplit("error:", 1)
    assert left.value.code == 2 and "usage: tpu-preflight" in usage
    assert any(x in said for x in ("is no", "are required", "not allowed with"))


def test_each_option_stands_in_the_readme_and_the_help_is_in_groups(capsys):
    with pytest.raises(SystemExit):
        command.main(["--help"])
    said = capsys.readouterr().out
    options = set(re.findall(r"(?<![\w-])--[a-z-]+", said)) - {"--help"}
    assert len(options) == 12 and {x for x in options if f"`{x}" not in README} == set()
    groups = ("the TPU:", "more checks, which take longer:", "the price of a run", "the report:")
    places = [said.index(group) for group in (*groups, "examples:", "exit status:")]
    assert places == sorted(places)


def test_targets_come_once_all_values_count_and_a_price_brings_a_profile(ready, capsys):
    words = "m:f -t v5e-8 -t v6e-8 -t v5e-8 --steps 9 --vary a=4 --vary b=x --vary a=6,8"
    assert command.main(words.split()) == 0
    ((name, targets, options),) = ready
    assert options["vary"] == {"a": [4, 6, 8], "b": ["x"]}
    assert (name, targets, options["profile"]) == ("m:f", ["v5e-8", "v6e-8"], True)
    assert options["timeout"] == 3 * command.SECONDS
    out, err = capsys.readouterr()
    assert "✓ 1 step: compiles" in out and re.fullmatch(r"preflight, +0 s: compiling\n", err)


def test_a_reader_who_leaves_and_a_terminal_with_few_letters_do_no_harm(tmp_path):
    (tmp_path / "my_model.py").write_text("import math\n\n\ndef build():\n    return 1 / 0\n")
    tool = f"{sys.executable} -m tpu_preflight my_model:build 2>"
    line = f"{tool}&1 | head -c 1; {tool}&-; {tool}/dev/full || exit $?"  # quiet, or mute
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(line, shell=True, cwd=tmp_path, env=environment, capture_output=True)
    assert (done.stdout, done.stderr, done.returncode) == (b"p", b"", 2)
