"""helpers.tpu.cloud: a shell reads the commands back as they were meant, and names are checked."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tables import table

from helpers.tpu import cloud
from helpers.tpu.runtimes import RELEASES, WHEELS
from tpu_preflight.chips.hardware import CHIPS
from tpu_preflight.errors import PreflightError

V5E = {
    "project": "my-project",
    "zone": "us-west4-a",
    "accelerator_type": "v5e-8",
    "version": "tpu-vm-tf-2.18.0-pjrt",
}


def vm(**changes):
    return cloud.TpuVm(**(V5E | changes))


def whole_life(machine, text="ls"):
    life = machine.prepare() + machine.create() + machine.queue(spot=True)
    life += machine.ssh() + machine.ssh(text, worker="all")
    life += machine.upload("-rf", "~/code") + machine.download("logs", "here")
    return life + machine.delete() + machine.delete_bucket() + machine.what_bills()


def by_a_shell(line, folder):
    """What a program named gcloud is given when a POSIX shell runs the line."""
    program = folder / "gcloud"
    program.write_text(
        f"#!{sys.executable} -IS\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"
    )
    program.chmod(0o755)
    environment = {"PATH": f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["sh", "-c", line], env=environment, capture_output=True, check=True, cwd=folder
    )
    assert done.stderr == b""
    return ("gcloud", *json.loads(done.stdout))


@pytest.mark.parametrize(
    "text",
    [
        *("'; rm -rf ~; '", '$(touch x) `touch x` "$HOME"', "a\nb\\\nc", "&& || | > x"),
        *("é 한국", "*"),
    ],
)
def test_a_shell_gives_gcloud_the_words_that_were_meant(text, tmp_path):
    machine = vm()
    for command in (*machine.ssh(text).commands, *machine.upload("./" + text, text).commands):
        assert by_a_shell(str(command), tmp_path) == command.words
        assert by_a_shell(command.lines(), tmp_path) == command.words
    assert [x.name for x in tmp_path.iterdir()] == ["gcloud"]  # nothing of the text was run


TYPES = st.sampled_from(
    [f"{chip.name}-{n}" for chip in CHIPS.values() for n in chip.sizes if n <= 128]
    + ["v5litepod-8"]
)


@st.composite
def tpus(draw):
    """Arguments that are accepted."""
    kind = draw(TYPES)
    release = draw(st.sampled_from(RELEASES[8:] + WHEELS[-2:]))
    project = draw(st.from_regex(r"p[a-z0-9-]{4,28}[a-z0-9]", fullmatch=True))
    assume("google" not in project)
    return {
        "project": project,
        "zone": draw(st.sampled_from([*cloud.zones(kind).names, "asia-northeast1-b"])),
        "accelerator_type": kind,
        "version": cloud.runtime(release, kind).version,
        "name": draw(st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)),
    }


@settings(max_examples=200, deadline=None)
@given(arguments=tpus(), text=st.text(min_size=1).filter(lambda x: x.strip() and "\0" not in x))
def test_any_accepted_input_gives_commands_that_split_into_the_same_words(arguments, text):
    assume("google" not in arguments["name"])
    machine = cloud.TpuVm(**arguments)
    life = whole_life(machine, text)
    if ":" not in text:
        life += machine.upload(text, text)
    for command in life.commands:
        assert shlex.split(str(command)) == list(command.words)
        assert command.lines().replace(" \\\n    ", " ") == str(command)
        assert command.words[0] == "gcloud"


@settings(max_examples=200, deadline=None)
@given(
    arguments=tpus(),
    key=st.sampled_from(["project", "zone", "accelerator_type", "version", "name", "bucket"]),
    text=st.text(max_size=70),
)
def test_any_text_is_accepted_whole_or_refused_with_a_message(arguments, key, text):
    try:
        machine = cloud.TpuVm(**(arguments | {key: text}))
    except PreflightError as refused:
        assert refused.what and refused.why and refused.fix
    else:
        assert re.fullmatch(r"[\x21-\x7e ]+", str(machine.prepare().commands[0]))
        assert getattr(machine, key) == text


def test_the_commands_of_a_whole_life_by_hand():
    life = whole_life(vm(bucket="my-bucket"), "hostname")
    expected = pathlib.Path(__file__).with_name("whole_life.txt").read_text("utf-8")
    assert [str(x) for x in life.commands] == expected.splitlines()
    costly = [x.purpose for x in life.commands if x.costs]
    assert [purpose.partition(" ")[0] for purpose in costly] == ["a", "rent", "stand"]


STARTS = {"os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}


def test_nothing_is_run():
    watched, started = True, []
    sys.addaudithook(lambda event, _: watched and event in STARTS and started.append(event))
    life = whole_life(vm())
    assert repr(life) and life._repr_html_()
    assert started == []
    os.system("exit 0")
    assert started == ["os.system"]  # the watch sees what is run
    watched = False


@pytest.mark.parametrize(("field", "value", "words"), table("wrong_names.tsv"))
def test_a_name_that_google_refuses_is_told(field, value, words):
    with pytest.raises(cloud.InvalidName, match=words):
        vm(**{field: value.replace("\\n", "\n")})


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda x: vm(accelerator_type="v9-8"), "v9-8"),
        (lambda x: vm(version="2.18.0"), "no TPU VM image"),
        (lambda x: x.ssh(""), "The command is empty"),
        (lambda x: x.ssh(" \n"), "The command is empty"),
        (lambda x: x.ssh("a\0b"), r"(?s)NUL.*again"),
        (lambda x: x.ssh("\ud800"), "half a character"),
        (lambda x: x.upload(""), "The path is empty"),
        (lambda x: x.upload("code", "a\0"), "The path"),
        (lambda x: x.download(""), "The path is empty"),
        (lambda x: x.upload("C:/code"), r"(?s)colon.*NAME:PATH.*Rename"),
        (lambda x: x.ssh("ls", worker=1), r"(?s)worker 1.*has 1 host,.*0 to 0"),
        (lambda x: x.upload("a", worker=-1), "worker -1"),
        (lambda x: x.download("a", worker="x"), "worker 'x'"),
    ],
)
def test_each_mistake_has_its_message(ask, words):
    with pytest.raises(PreflightError, match=words):
        ask(vm())


def test_a_zone_without_this_type_is_refused():
    with pytest.raises(cloud.NotInZone, match=r"(?s)No v5e-8.*us-west4-a.*accelerator-types"):
        vm(zone="us-central1-b")


def test_an_ai_zone_belongs_to_its_region():
    machine = vm(zone="us-south1-ai1b", accelerator_type="v6e-8", version="v2-alpha-tpuv6e")
    assert machine.region == "us-south1" and machine.doubts == ()


def test_the_images_own_tensorflow_fits_and_a_base_image_takes_any():
    vm().check_tensorflow("2.18.0")
    vm(version="v2-alpha-tpuv5-lite").check_tensorflow("2.20.0")
    with pytest.raises(cloud.Mismatch, match=r"(?s)has .* 2\.18\.0; yours"):
        vm().check_tensorflow("2.20.0")


def test_a_zone_that_was_not_read_is_a_doubt_on_what_costs():
    machine = vm(zone="asia-southeast1-b")
    assert machine.region == "asia-southeast1"
    for commands in (machine.create(), machine.queue(), machine.prepare() + machine.create()):
        assert repr(commands).startswith("# Not checked: whether asia-southeast1-b has a v5e-8")
        assert "<p>Not checked: whether" in commands._repr_html_()
    both = machine.create() + machine.queue()
    assert len(both.doubts) == 1 and len(both.commands) == 3


def test_shown_as_text_and_as_html():
    commands = vm().create(spot=True) + vm().ssh("echo '<b>' && ls")
    assert repr(commands) == (
        "# rent the TPU, as long as Google can spare it (costs from here on)\n"
        "gcloud compute tpus tpu-vm create tpu-course --project=my-project --zone=us-west4-a \\\n"
        "    --accelerator-type=v5litepod-8 --version=tpu-vm-tf-2.18.0-pjrt \\\n"
        "    --service-account=tpu-course@my-project.iam.gserviceaccount.com --spot\n"
        "# run it on the VM\n"
        "gcloud compute tpus tpu-vm ssh tpu-course --project=my-project --zone=us-west4-a \\\n"
        "    '--command=echo '\"'\"'<b>'\"'\"' && ls'"
    )
    page = commands._repr_html_()
    assert page.count("<pre ") == page.count("<code ") == 2
    assert page.count("white-space:pre;") == 4
    assert "&lt;b&gt;" in page and "<b>'" not in page
    assert page.count("costs from here on") == 1
    assert "bucket gs://my-project-tpu-course in us-west4" in repr(vm())


def test_a_long_projects_bucket_is_cut_to_what_is_allowed():
    machine = vm(project="a" * 30, name="b" * 32 + "-" + "c" * 10)
    assert machine.bucket == "a" * 30 + "-" + "b" * 32
