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

from helpers.tpu import cloud
from helpers.tpu.hardware import CHIPS, UnknownAccelerator, slice_of

V5E = {
    "project": "my-project",
    "zone": "us-west4-a",
    "accelerator_type": "v5e-8",
    "version": "tpu-vm-tf-2.18.0-pjrt",
}
POD = V5E | {"accelerator_type": "v5e-16", "version": "tpu-vm-tf-2.18.0-pod-pjrt"}


def vm(**changes):
    return cloud.TpuVm(**(V5E | changes))


def every_command(machine, text="ls"):
    parts = [
        machine.prepare(),
        machine.create(),
        machine.create(spot=True),
        machine.queue(spot=True),
        machine.ssh(),
        machine.ssh(text, worker="all"),
        machine.upload("code"),
        machine.download("logs"),
        machine.delete(),
        machine.delete_bucket(),
        machine.what_bills(),
    ]
    return [command for part in parts for command in part.commands]


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


# What a shell can be made to misread.
NASTY = (
    "'; rm -rf ~; '",
    '$(touch x) `touch x` "$HOME"',
    "a\nb\\\nc",
    " \t",
    "&& || | > x",
    "é 한국",
    "*",
)


@pytest.mark.parametrize("text", [x for x in NASTY if x.strip()])
def test_a_shell_gives_gcloud_the_words_that_were_meant(text, tmp_path):
    machine = vm()
    for command in (*machine.ssh(text).commands, *machine.upload("./" + text, text).commands):
        assert by_a_shell(str(command), tmp_path) == command.words
        assert by_a_shell(command.lines(), tmp_path) == command.words
    assert [x.name for x in tmp_path.iterdir()] == ["gcloud"]  # nothing of the text was run


TYPES = st.sampled_from(
    [f"{kind}-{n}" for kind in CHIPS for n in (1, 4, 8, 16, 32, 128)] + ["v5litepod-8"]
)
ZONES = st.sampled_from(
    [*sorted({zone for offer in cloud.OFFERS for zone in offer.zones}), "asia-northeast1-b"]
)
VERSIONS = st.sampled_from(
    [f"tpu-vm-tf-{x}{y}" for x in cloud.RELEASES for y in ("", "-pod", "-pjrt", "-pod-pjrt", "-se")]
    + list(cloud.BASE_IMAGES.values())
)
REFUSALS = (
    cloud.InvalidName,
    cloud.NotInZone,
    cloud.UnknownRuntime,
    cloud.NeedsPjrt,
    cloud.RuntimeTooOld,
    cloud.NeedsPod,
    cloud.NotAPod,
    cloud.NotText,
    cloud.AmbiguousPath,
    UnknownAccelerator,
)


@st.composite
def tpus(draw):
    """Arguments that are accepted."""
    kind = draw(TYPES.filter(exists))
    offered = [zone for offer in cloud.zones(kind).offers for zone in offer.zones]
    release = draw(st.sampled_from(cloud.RELEASES[8:] + cloud.WHEELS[-2:]))
    project = draw(st.from_regex(r"p[a-z0-9-]{4,28}[a-z0-9]", fullmatch=True))
    assume("google" not in project)
    return {
        "project": project,
        "zone": draw(st.sampled_from([*offered, "asia-northeast1-b"])),
        "accelerator_type": kind,
        "version": cloud.runtime(release, kind).version,
        "name": draw(st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)),
    }


def exists(kind):
    try:
        return bool(slice_of(kind))
    except UnknownAccelerator:
        return False


@settings(max_examples=200, deadline=None)
@given(arguments=tpus(), text=st.text(min_size=1).filter(lambda x: x.strip() and "\0" not in x))
def test_any_accepted_input_gives_commands_that_split_into_the_same_words(arguments, text):
    assume("google" not in arguments["name"])
    machine = cloud.TpuVm(**arguments)
    commands = every_command(machine, text)
    if ":" not in text:
        commands += machine.upload(text, text).commands
    for command in commands:
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
    except REFUSALS as refused:
        assert refused.what and refused.why and refused.fix
    else:
        assert re.fullmatch(r"[\x21-\x7e ]+", str(every_command(machine)[0]))
        assert getattr(machine, key) == text


@settings(max_examples=300, deadline=None)
@given(kind=TYPES, version=VERSIONS, zone=ZONES)
def test_what_is_accepted_is_what_the_pages_allow(kind, version, zone):
    """The rules once more, written as one expression each."""
    try:
        accelerator = slice_of(kind)
    except UnknownAccelerator:
        assume(False)
    chip, pod = accelerator.chip.name, "-pod" in version
    older = bool(re.search(r"-2\.1[1-4]\.", version))
    if version.startswith("tpu-vm-tf-"):
        fits = pod == (accelerator.hosts > 1) and not (older and version.endswith(("jrt", "-se")))
        fits &= chip in ("v2", "v3", "v4") or version.endswith("-pjrt")
    else:
        fits = version == cloud.BASE_IMAGES[chip]
    listed = any(zone in offer.zones for offer in cloud.zones(kind).offers)
    expected = fits and (listed or not zone.startswith("us-"))
    try:
        machine = cloud.TpuVm("my-project", zone, kind, version)
    except REFUSALS:
        assert not expected
    else:
        assert expected
        assert bool(machine.create().doubts) == (not listed)


def test_the_commands_of_a_whole_life_by_hand():
    machine = vm(bucket="my-bucket")
    where = ["--project=my-project", "--zone=us-west4-a"]
    account = "--service-account=tpu-course@my-project.iam.gserviceaccount.com"
    kind = "--accelerator-type=v5litepod-8"
    tpus = ["gcloud", "compute", "tpus"]
    (created,) = machine.create().commands
    assert list(created.words) == [
        *(*tpus, "tpu-vm", "create", "tpu-course", *where, kind),
        *("--version=tpu-vm-tf-2.18.0-pjrt", account),
    ]
    queued, look = machine.queue(spot=True).commands
    assert list(queued.words) == [
        *(*tpus, "queued-resources", "create", "tpu-course-request", *where),
        *("--node-id=tpu-course", kind, "--runtime-version=tpu-vm-tf-2.18.0-pjrt", account),
        *("--valid-until-duration=12h", "--spot"),
    ]
    assert list(look.words) == [*tpus, "queued-resources", "describe", "tpu-course-request", *where]
    services, person, bucket, permission = machine.prepare().commands
    assert str(services) == (
        "gcloud services enable compute.googleapis.com tpu.googleapis.com --project=my-project"
    )
    assert str(person) == "gcloud iam service-accounts create tpu-course --project=my-project"
    assert str(bucket) == (
        "gcloud storage buckets create gs://my-bucket --project=my-project "
        "--location=us-west4 --uniform-bucket-level-access"
    )
    assert str(permission) == (
        "gcloud storage buckets add-iam-policy-binding gs://my-bucket "
        "--member=serviceAccount:tpu-course@my-project.iam.gserviceaccount.com "
        "--role=roles/storage.objectAdmin"
    )
    delete, request = machine.delete().commands
    assert list(delete.words) == [*tpus, "tpu-vm", "delete", "tpu-course", *where]
    assert list(request.words) == [
        *(*tpus, "queued-resources", "delete", "tpu-course-request", *where, "--force")
    ]
    (ssh,) = cloud.TpuVm(**POD).ssh("hostname", worker="all").commands
    assert list(ssh.words) == [
        *(*tpus, "tpu-vm", "ssh", "tpu-course", *where, "--worker=all", "--command=hostname")
    ]
    (up,) = machine.upload("-rf", "~/code").commands
    assert up.words[4:8] == ("scp", "--recurse", "./-rf", "tpu-course:~/code")
    (down,) = machine.download("logs", "here").commands
    assert down.words[6:8] == ("tpu-course:logs", "here")
    assert (
        str(machine.delete_bucket().commands[0]) == "gcloud storage rm --recursive gs://my-bucket"
    )


def test_what_was_made_is_looked_for_at_the_end():
    machine = vm()
    listed = [" ".join(x.words[1:4]) for x in machine.what_bills().commands]
    assert listed == [
        *("compute tpus tpu-vm", "compute tpus queued-resources", "compute instances list"),
        *("compute disks list", "compute addresses list", "storage buckets list"),
    ]
    assert all("list" in x.words for x in machine.what_bills().commands)
    assert not any(x.costs for x in machine.delete().commands + machine.what_bills().commands)
    assert all(x.costs for x in machine.create().commands) and machine.queue().commands[0].costs


def test_nothing_is_run(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(os, "system", None)
    assert every_command(vm())
    assert not re.search(r"^\s*(?:import|from) (?:subprocess|os)\b", _source(), re.MULTILINE)


def _source():
    return pathlib.Path(cloud.__file__).read_text("utf-8")


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"project": "My Project"}, cloud.InvalidName, r"(?s)no project.*6 to 30.*projects list"),
        ({"project": "my-project\n"}, cloud.InvalidName, "no project"),
        ({"project": "ab"}, cloud.InvalidName, "no project"),
        ({"project": "example.com:old"}, cloud.InvalidName, "no project"),
        ({"zone": "us-west4"}, cloud.InvalidName, r"(?s)no zone.*such as us-central1-a"),
        ({"zone": "Us-west4-a"}, cloud.InvalidName, "no zone"),
        ({"name": "-tpu"}, cloud.InvalidName, "no name of a TPU"),
        ({"name": "a" * 51}, cloud.InvalidName, "no name of a TPU"),
        ({"name": "tpu; reboot"}, cloud.InvalidName, "no name of a TPU"),
        ({"bucket": "gs://mine"}, cloud.InvalidName, r"(?s)no bucket.*without the word google"),
        ({"bucket": "mygooglebucket"}, cloud.InvalidName, "no bucket"),
        ({"accelerator_type": "v9-8"}, UnknownAccelerator, "v9-8"),
        (
            {"zone": "us-central1-b"},
            cloud.NotInZone,
            r"(?s)No v5e-8.*us-west4-a.*accelerator-types",
        ),
        ({"version": "2.18.0"}, cloud.UnknownRuntime, r"(?s)'2\.18\.0'.*versions list"),
        ({"version": "tpu-vm-tf-2.20.0-pjrt"}, cloud.UnknownRuntime, "2.11.0 to 2.18.0"),
        ({"version": "tpu-vm-tf-2.18.0"}, cloud.NeedsPjrt, r"(?s)PJRT alone.*2\.18\.0-pjrt\."),
        ({"version": "tpu-vm-tf-2.18.0-pod-pjrt"}, cloud.NotAPod, r"(?s)one host.*2\.18\.0-pjrt\."),
        ({"version": "tpu-vm-tf-2.14.1"}, cloud.RuntimeTooOld, r"(?s)2\.15 or newer.*older TPU"),
        (POD | {"version": "tpu-vm-tf-2.18.0-pjrt"}, cloud.NeedsPod, r"(?s)has 4\..*-pod-pjrt\."),
        (
            {
                "accelerator_type": "v3-8",
                "zone": "us-central1-a",
                "version": "tpu-vm-tf-2.14.1-pjrt",
            },
            cloud.UnknownRuntime,
            r"(?s)no choice.*tpu-vm-tf-2\.14\.1\.",
        ),
    ],
)
def test_each_mistake_has_its_message(changes, error, words):
    with pytest.raises(error, match=words):
        vm(**changes)


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda x: x.ssh(""), cloud.NotText, "The command is empty"),
        (lambda x: x.ssh(" \n"), cloud.NotText, "The command is empty"),
        (lambda x: x.ssh("a\0b"), cloud.NotText, r"(?s)NUL.*anew"),
        (lambda x: x.ssh("\ud800"), cloud.NotText, "half a character"),
        (lambda x: x.upload(""), cloud.NotText, "The path is empty"),
        (lambda x: x.upload("code", "a\0"), cloud.NotText, "The path"),
        (lambda x: x.download(""), cloud.NotText, "The path is empty"),
        (lambda x: x.upload("C:/code"), cloud.AmbiguousPath, r"(?s)colon.*NAME:PATH.*Rename"),
        (lambda x: x.ssh("ls", worker=1), cloud.NoSuchWorker, r"(?s)worker 1.*has 1 host,.*0 to 0"),
        (lambda x: x.upload("a", worker=-1), cloud.NoSuchWorker, "worker -1"),
        (lambda x: x.download("a", worker="x"), cloud.NoSuchWorker, "worker 'x'"),
        (lambda x: x.check_tensorflow("2.20.0"), cloud.Mismatch, r"(?s)has .* 2\.18\.0; yours"),
    ],
)
def test_each_wrong_question_has_its_message(ask, error, words):
    with pytest.raises(error, match=words):
        ask(vm())


def test_the_images_own_tensorflow_fits_and_a_base_image_takes_any():
    vm().check_tensorflow("2.18.0")
    vm(version="v2-alpha-tpuv5-lite").check_tensorflow("2.20.0")


@pytest.mark.parametrize(
    ("tensorflow", "kind", "version"),
    [
        ("2.18.0", "v5e-8", "tpu-vm-tf-2.18.0-pjrt"),
        ("2.18.0", "v5e-16", "tpu-vm-tf-2.18.0-pod-pjrt"),
        ("2.14.1", "v3-32", "tpu-vm-tf-2.14.1-pod"),
        ("2.16.1", "v4-8", "tpu-vm-tf-2.16.1-pjrt"),
        ("2.20.0", "v5e-8", "v2-alpha-tpuv5-lite"),
        ("2.20.0", "v5p-8", "v2-alpha-tpuv5"),
        ("2.19.1", "v6e-4", "v2-alpha-tpuv6e"),
        ("2.20.0", "v2-8", "tpu-ubuntu2204-base"),
    ],
)
def test_the_image_for_a_tensorflow(tensorflow, kind, version):
    found = cloud.runtime(tensorflow, kind)
    assert found.version == version
    if version.startswith("tpu-vm-tf"):
        assert found.install == "" and repr(found) == version
    else:
        assert f"tensorflow-tpu=={tensorflow} " in found.install and found.install in repr(found)
        assert shlex.split(found.install)[-1] == f"tf-keras~={tensorflow[:4]}.0"


def test_a_tensorflow_without_image_and_package_is_told():
    with pytest.raises(cloud.NoTensorFlow, match=r"(?s)TensorFlow 2\.21\.0.*2\.20\.0.*one of"):
        cloud.runtime("2.21.0", "v5e-8")
    with pytest.raises(cloud.RuntimeTooOld, match=r"2\.14\.1 can't run on a v6e"):
        cloud.runtime("2.14.1", "v6e-4")


def test_zones_by_type():
    assert {zone for x in cloud.zones("v4-32").offers for zone in x.zones} == {"us-central2-b"}
    assert [x.sizes for x in cloud.zones("v3-8").offers] == [("v3-8",)]
    assert cloud.zones("v5litepod-8") == cloud.zones("v5e-8") != cloud.zones("v5p-8")
    assert cloud.zones().offers == cloud.OFFERS
    with pytest.raises(UnknownAccelerator):
        cloud.zones("v1-8")


def test_the_tables_are_consistent():
    sizes = {size for offer in cloud.OFFERS for size in offer.sizes}
    assert {slice_of(size).name for size in sizes} == sizes
    assert {offer.chip for offer in cloud.OFFERS} == set(CHIPS) == set(cloud.BASE_IMAGES)
    assert all(offer.source.startswith("https://cloud.google.com/tpu/") for offer in cloud.OFFERS)
    assert re.fullmatch(r"20\d\d-\d\d", cloud.CHECKED)


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
    assert "v3-8: us-central1-a" in repr(cloud.zones()) and "2026-11" in repr(cloud.zones())
    assert cloud.zones()._repr_html_().count("<tr>") == len(cloud.OFFERS) + 1


def test_a_long_projects_bucket_is_cut_to_what_is_allowed():
    machine = vm(project="a" * 30, name="b" * 32 + "-" + "c" * 10)
    assert machine.bucket == "a" * 30 + "-" + "b" * 32
