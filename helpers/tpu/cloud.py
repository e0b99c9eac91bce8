"""The gcloud commands that take an empty Google Cloud project to a TPU VM and back.

Commands are built and checked here, never run: they cost money, and the account is yours. They
were compared with Google's reference, not tried on Google Cloud.
"""

import dataclasses
import html
import re
import shlex

from helpers.base.errors import CourseError
from helpers.tpu.hardware import DOCS, Slice, slice_of

CHECKED = "2026-11"
ACCOUNT = "tpu-course"  # the service account as which the VM reads and writes the bucket
PATIENCE = "12h"  # a request in line lapses after this, so that none starts to cost days later

# Shapes of names, from Google's pages on resource names. Nothing in them needs quoting.
_NAMES = {
    "project": (
        r"[a-z][a-z0-9-]{4,28}[a-z0-9]",
        "6 to 30 lower-case letters, digits and dashes, a letter first, no dash last",
        "The project's ID (not its display name) stands in `gcloud projects list`.",
    ),
    "zone": (
        r"[a-z]+-[a-z]+[0-9]+-[a-z][a-z0-9]*",
        "a region, a dash and a letter, such as us-central1-a",
        "Take one of helpers.tpu.cloud.zones().",
    ),
    "name": (
        r"[a-z](?:[a-z0-9-]{0,48}[a-z0-9])?",
        "up to 50 lower-case letters, digits and dashes, a letter first, no dash last",
        "Choose a short one, such as tpu-course.",
    ),
    "bucket": (
        r"(?!goog)(?!.*google)[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]",
        "3 to 63 lower-case letters, digits, dashes and underscores, without the word google",
        "Put your project's ID in front, such as my-project-tpu: bucket names are shared by "
        "everybody in the world.",
    ),
}


@dataclasses.dataclass(frozen=True)
class Offer:
    """Where a kind of TPU is rented.

    Attributes:
        chip: Such as ``v5e``.
        sizes: Accelerator types this line is about; empty: all of the kind.
        zones: Where.
        source: The page that says so.
    """

    chip: str
    sizes: tuple[str, ...]
    zones: tuple[str, ...]
    source: str


_PAGE = f"{DOCS}regions-zones"
_V2_PODS = tuple(f"v2-{n}" for n in (32, 128, 256, 512))
_V3_PODS = tuple(f"v3-{2**n}" for n in range(5, 12))
OFFERS = (
    Offer("v6e", (), ("us-central1-b", "us-east1-d", "us-east5-a", "us-east5-b"), _PAGE),
    Offer("v6e", (), ("europe-west4-a",), _PAGE),
    Offer("v5p", (), ("us-central1-a", "us-east5-a"), _PAGE),
    Offer("v5p", (), ("europe-west4-b",), f"{DOCS}jax-pods"),
    Offer("v5e", (), ("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a"), _PAGE),
    Offer("v4", (), ("us-central2-b",), _PAGE),
    Offer("v3", ("v3-8",), ("us-central1-a", "us-central1-b", "europe-west4-a"), _PAGE),
    Offer("v3", _V3_PODS, ("europe-west4-a",), _PAGE),
    Offer("v2", ("v2-8",), ("us-central1-b", "us-central1-c", "europe-west4-a"), _PAGE),
    Offer("v2", _V2_PODS, ("us-central1-a", "europe-west4-a"), _PAGE),
)
# Of this part of the page we read every line. In Europe, Asia and South America there are more
# zones, whose lines we could not read: a zone there is a doubt, not an error.
READ_WHOLLY = "us-"

# TensorFlow releases with a TPU VM image that we saw named in Google's pages.
RELEASES = (
    *("2.11.0", "2.11.1", "2.12.0", "2.12.1", "2.13.0", "2.13.1", "2.14.0", "2.14.1"),
    *("2.15.0", "2.15.1", "2.16.1", "2.17.0", "2.17.1", "2.18.0"),
)
RELEASES_SOURCE = f"{DOCS}runtimes"
FIRST_PJRT = (2, 15)
NEEDS_PJRT = ("v5e", "v5p", "v6e")
# Images with drivers but without TensorFlow, for one that you install yourself.
BASE_IMAGES = {
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v4": "tpu-ubuntu2204-base",
    "v5e": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
# Releases of the package tensorflow-tpu on the package index.
WHEELS = ("2.16.1", "2.16.2", "2.17.0", "2.17.1", "2.18.0", "2.19.1", "2.20.0")


class InvalidName(CourseError):
    """A name has a form that Google Cloud refuses."""


class NotInZone(CourseError):
    """This type of TPU is not rented in this zone."""


class UnknownRuntime(CourseError):
    """There is no TPU VM image of this name."""


class NeedsPjrt(CourseError):
    """This kind of TPU works with PJRT images only."""


class RuntimeTooOld(CourseError):
    """The image is older than the TPU."""


class NeedsPod(CourseError):
    """Several hosts need an image made for pod slices."""


class NotAPod(CourseError):
    """One host needs an image that is not made for pod slices."""


class NoTensorFlow(CourseError):
    """No image and no package has this TensorFlow."""


class Mismatch(CourseError):
    """Your TensorFlow is not the image's."""


class NoSuchWorker(CourseError):
    """The TPU has fewer hosts."""


class NotText(CourseError):
    """A shell can't pass this on."""


class AmbiguousPath(CourseError):
    """gcloud would take a path on your disk for one on another machine."""


@dataclasses.dataclass(frozen=True)
class Command:
    """One command, as the words that a program would be given.

    Attributes:
        purpose: What it is for.
        words: The program and its arguments.
        costs: Whether money is charged from here on.
    """

    purpose: str
    words: tuple[str, ...]
    costs: bool = False

    def __str__(self) -> str:
        return shlex.join(self.words)

    def lines(self, width: int = 92) -> str:
        """Write the command over several lines, each but the last ending in a backslash."""
        quoted = [shlex.quote(word) for word in self.words]
        text, length = quoted[0], len(quoted[0])
        for word in quoted[1:]:
            if length + len(word) + 3 > width:
                text, length = f"{text} \\\n    {word}", 4 + len(word)
            else:
                text, length = f"{text} {word}", length + 1 + len(word)
        return text


@dataclasses.dataclass(frozen=True)
class Commands:
    """Commands in order; shown, to be copied to a shell.

    Attributes:
        commands: What to type.
        doubts: What we could not check.
    """

    commands: tuple[Command, ...]
    doubts: tuple[str, ...] = ()

    def __add__(self, other: "Commands") -> "Commands":
        doubts = (*self.doubts, *(x for x in other.doubts if x not in self.doubts))
        return Commands(self.commands + other.commands, doubts)

    def __repr__(self) -> str:
        notes = [f"# Not checked: {doubt}" for doubt in self.doubts]
        return "\n".join(
            notes
            + [
                f"# {command.purpose}{' (costs from here on)' * command.costs}\n{command.lines()}"
                for command in self.commands
            ]
        )

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>Not checked: {html.escape(doubt)}</p>" for doubt in self.doubts)
        # JupyterLab would break long lines within a word, and takes code's letters for <code> only.
        style = "white-space:pre;overflow-x:auto"
        shown = "".join(
            f'<p style="margin:0">{html.escape(command.purpose)}'
            f"{' <b>(costs from here on)</b>' * command.costs}</p>"
            f'<pre style="{style};margin:0 0 1em"><code style="{style}">'
            f"{html.escape(command.lines())}</code></pre>"
            for command in self.commands
        )
        return notes + shown


@dataclasses.dataclass(frozen=True)
class Zones:
    """Which TPU is rented where, with the page and the month in which it was read."""

    offers: tuple[Offer, ...]
    checked: str = CHECKED

    def _rows(self) -> list[tuple[str, str, str]]:
        return [
            (", ".join(x.sizes) or f"all {x.chip}", ", ".join(x.zones), x.source)
            for x in self.offers
        ]

    def __repr__(self) -> str:
        lines = [f"{types}: {zones} ({source})" for types, zones, source in self._rows()]
        return "\n".join([*lines, f"Read {self.checked}; there may be more outside the USA."])

    def _repr_html_(self) -> str:
        style = 'style="text-align:left"'
        rows = "".join(
            "<tr>" + "".join(f"<td {style}>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self._rows()
        )
        head = "".join(f"<th {style}>{x}</th>" for x in ("type", "zones", "source"))
        note = f"<p>Read {self.checked}; there may be more outside the USA.</p>"
        return f"<table><tr>{head}</tr>{rows}</table>{note}"


@dataclasses.dataclass(frozen=True)
class Runtime:
    """How a TPU VM comes to a TensorFlow.

    Attributes:
        version: The image, for ``TpuVm.version``.
        install: What to type on the VM; empty when the image brings TensorFlow along.
    """

    version: str
    install: str = ""

    def __repr__(self) -> str:
        return f"{self.version}, then on the VM: {self.install}" if self.install else self.version


def zones(accelerator_type: str | None = None) -> Zones:
    """Look up where TPUs are rented.

    Args:
        accelerator_type: Such as ``v5e-8``; None for all.

    Returns:
        The table, or the lines for this type.

    Raises:
        UnknownAccelerator: There is no such type.
    """
    if accelerator_type is None:
        return Zones(OFFERS)
    wanted = slice_of(accelerator_type)
    return Zones(
        tuple(
            offer
            for offer in OFFERS
            if offer.chip == wanted.chip.name and (not offer.sizes or wanted.name in offer.sizes)
        )
    )


def _release(version: str) -> tuple[int, int]:
    """Major and minor number of a version."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def runtime(tensorflow: str, accelerator_type: str) -> Runtime:
    """Find the image for a TensorFlow on a TPU: one that has it, or one to install it on.

    Args:
        tensorflow: Its version, such as ``tf.__version__``.
        accelerator_type: Such as ``v5e-8``.

    Returns:
        The image and what to install on it. Installing ``tensorflow-tpu`` on a base image was not
        confirmed on a TPU by us.

    Raises:
        NoTensorFlow: No image and no package of this version is known.
        RuntimeTooOld: The TPU needs a newer TensorFlow.
        UnknownAccelerator: There is no such type of TPU.
    """
    accelerator = slice_of(accelerator_type)
    if tensorflow in RELEASES:
        pod = "-pod" * (accelerator.hosts > 1)
        pjrt = "-pjrt" * (_release(tensorflow) >= FIRST_PJRT)
        version = f"tpu-vm-tf-{tensorflow}{pod}{pjrt}"
        _check_runtime(version, accelerator)
        return Runtime(version)
    if tensorflow not in WHEELS:
        raise NoTensorFlow(
            f"No TPU VM image and no package tensorflow-tpu has TensorFlow {tensorflow[:40]}.",
            f"Images: {RELEASES[0]} to {RELEASES[-1]} ({RELEASES_SOURCE}, {CHECKED}); "
            f"packages: {', '.join(WHEELS)}.",
            "Train with one of these versions.",
        )
    install = (
        "pip uninstall -y tensorflow && "
        f"pip install tensorflow-tpu=={tensorflow} && "
        f"pip install --no-deps 'tf-keras~={tensorflow.rpartition('.')[0]}.0'"
    )
    return Runtime(BASE_IMAGES[accelerator.chip.name], install)


def _check_runtime(version: str, accelerator: Slice) -> None:
    chip = accelerator.chip.name
    if version == BASE_IMAGES[chip]:
        return
    match = re.fullmatch(r"tpu-vm-tf-(\d+\.\d+\.\d+)(-pod)?(-pjrt|-se)?", version, re.ASCII)
    if not match or match[1] not in RELEASES:
        raise UnknownRuntime(
            f"{version[:60]!r} is no TPU VM image that we know.",
            f"For a {chip} they are {BASE_IMAGES[chip]} (without TensorFlow), and "
            f"tpu-vm-tf-x.y.z[-pod][-pjrt] with TensorFlow {RELEASES[0]} to {RELEASES[-1]} "
            f"({RELEASES_SOURCE}, {CHECKED}).",
            "helpers.tpu.cloud.runtime(tf.__version__, accelerator_type) finds yours; "
            "`gcloud compute tpus tpu-vm versions list --zone=ZONE` shows what there is today.",
        )
    release, pod, interface = match.groups()
    if chip in NEEDS_PJRT and _release(release) < FIRST_PJRT:
        raise RuntimeTooOld(
            f"TensorFlow {release} can't run on a {chip}.",
            f"A {chip} needs TensorFlow 2.15 or newer ({RELEASES_SOURCE}, {CHECKED}).",
            f"Take tpu-vm-tf-{RELEASES[-1]}-pjrt, or an older TPU.",
        )
    if chip in NEEDS_PJRT and interface != "-pjrt":
        raise NeedsPjrt(
            f"{version} is not made for a {chip}.",
            f"v5e, v5p and v6e are driven through PJRT alone ({RELEASES_SOURCE}, {CHECKED}).",
            f"Take tpu-vm-tf-{release}{pod or ''}-pjrt.",
        )
    if interface and _release(release) < FIRST_PJRT:
        raise UnknownRuntime(
            f"{version} does not exist.",
            "Images before TensorFlow 2.15 have no choice of device interface.",
            f"Take tpu-vm-tf-{release}{pod or ''}.",
        )
    if accelerator.hosts > 1 and not pod:
        raise NeedsPod(
            f"{version} is for one host; a {accelerator.name} has {accelerator.hosts}.",
            f"Slices of several hosts need an image with -pod ({RELEASES_SOURCE}, {CHECKED}).",
            f"Take tpu-vm-tf-{release}-pod{interface or ''}.",
        )
    if accelerator.hosts == 1 and pod:
        raise NotAPod(
            f"{version} is for pod slices; a {accelerator.name} has one host.",
            f"-pod stands for slices of several hosts ({RELEASES_SOURCE}, {CHECKED}).",
            f"Take tpu-vm-tf-{release}{interface or ''}.",
        )


def _check_name(kind: str, value: str) -> None:
    pattern, rule, fix = _NAMES[kind]
    if not re.fullmatch(pattern, value, re.ASCII):
        raise InvalidName(
            f"{value[:70]!r} is no {kind}{' of a TPU' * (kind == 'name')}.",
            f"It must be {rule}.",
            fix,
        )


def _check_text(text: str, what: str) -> str:
    """Refuse what can't be an argument of a program."""
    try:
        usable = bool(text.strip()) and b"\0" not in text.encode()
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise NotText(
            f"The {what} is empty or holds characters that no program can be given.",
            "A NUL character or half a character can't stand in a command.",
            f"Type the {what} anew.",
        )
    return text


@dataclasses.dataclass(frozen=True)
class TpuVm:
    """A TPU VM that you mean to rent: checked when it is made, then asked for its commands.

    Every command names project and zone, so none depends on what ``gcloud config`` holds.

    Attributes:
        project: ID of your Google Cloud project.
        zone: Such as ``us-west4-a``.
        accelerator_type: Such as ``v5e-8`` (or ``v5litepod-8``, the same).
        version: The image: see `runtime`.
        name: Of the TPU.
        bucket: Without ``gs://``; None: the project's ID and the TPU's name.

    Raises:
        InvalidName: A name has a form that Google Cloud refuses.
        UnknownAccelerator: There is no such type of TPU.
        NotInZone: The type is not rented in this zone.
        UnknownRuntime: There is no such image.
        RuntimeTooOld: The image is older than the TPU.
        NeedsPjrt: The image lacks ``-pjrt``.
        NeedsPod: The image lacks ``-pod``.
        NotAPod: The image has ``-pod`` for a single host.
    """

    project: str
    zone: str
    accelerator_type: str
    version: str
    name: str = "tpu-course"
    bucket: str | None = None

    def __post_init__(self) -> None:
        _check_name("project", self.project)
        _check_name("zone", self.zone)
        _check_name("name", self.name)
        if self.bucket is None:
            object.__setattr__(self, "bucket", f"{self.project}-{self.name}"[:63].rstrip("-"))
        _check_name("bucket", self.bucket)
        _check_runtime(self.version, self.accelerator)
        known = [zone for offer in zones(self.accelerator_type).offers for zone in offer.zones]
        if self.zone not in known and self.zone.startswith(READ_WHOLLY):
            raise NotInZone(
                f"No {self.accelerator.name} is rented in {self.zone}.",
                f"It is in {', '.join(known)} ({_PAGE}, {CHECKED}).",
                f"Take one of these zones; `gcloud compute tpus accelerator-types list "
                f"--zone={self.zone}` shows what this one has today.",
            )

    @property
    def accelerator(self) -> Slice:
        """What the TPU consists of."""
        return slice_of(self.accelerator_type)

    @property
    def region(self) -> str:
        """Where the bucket belongs: the zone without its last part."""
        return self.zone.rpartition("-")[0]

    @property
    def account(self) -> str:
        """The service account as which the VM works."""
        return f"{ACCOUNT}@{self.project}.iam.gserviceaccount.com"

    @property
    def doubts(self) -> tuple[str, ...]:
        """What of this could not be checked."""
        known = [zone for offer in zones(self.accelerator_type).offers for zone in offer.zones]
        if self.zone in known:
            return ()
        return (f"whether {self.zone} has a {self.accelerator.name}; see {_PAGE}",)

    def __repr__(self) -> str:
        bucket = f"gs://{self.bucket} in {self.region}"
        return f"{self.accelerator}\nimage {self.version}, zone {self.zone}, bucket {bucket}"

    def _tpu(self, *words: str) -> tuple[str, ...]:
        return ("gcloud", "compute", "tpus", *words, *self._where)

    @property
    def _where(self) -> tuple[str, str]:
        return f"--project={self.project}", f"--zone={self.zone}"

    @property
    def _type(self) -> str:
        """The accelerator type in the API's own words."""
        return self.accelerator.name.replace("v5e-", "v5litepod-")

    def prepare(self) -> Commands:
        """Once in a project: APIs, a service account, a bucket beside the TPU, its permission."""
        project = f"--project={self.project}"
        services = ("compute.googleapis.com", "tpu.googleapis.com")
        bucket = f"gs://{self.bucket}"
        return Commands(
            (
                Command(
                    "switch the services on", ("gcloud", "services", "enable", *services, project)
                ),
                Command(
                    "an account for the VM, which may do nothing yet",
                    ("gcloud", "iam", "service-accounts", "create", ACCOUNT, project),
                ),
                Command(
                    f"a bucket in the TPU's region, {self.region}",
                    (
                        *("gcloud", "storage", "buckets", "create", bucket, project),
                        f"--location={self.region}",
                        "--uniform-bucket-level-access",
                    ),
                    costs=True,
                ),
                Command(
                    "let the VM read and write in it",
                    (
                        *("gcloud", "storage", "buckets", "add-iam-policy-binding", bucket),
                        f"--member=serviceAccount:{self.account}",
                        "--role=roles/storage.objectAdmin",
                    ),
                ),
            )
        )

    def create(self, spot: bool = False) -> Commands:
        """Rent the TPU now, or fail at once where there is none free.

        Args:
            spot: Cheaper, and taken away whenever Google needs it.
        """
        words = (
            *self._tpu("tpu-vm", "create", self.name),
            f"--accelerator-type={self._type}",
            f"--version={self.version}",
            f"--service-account={self.account}",
            *("--spot",) * spot,
        )
        purpose = "rent the TPU" + ", as long as Google can spare it" * spot
        return Commands((Command(purpose, words, costs=True),), self.doubts)

    def queue(self, spot: bool = False) -> Commands:
        """Ask for the TPU and wait in line; it is yours, and charged, as soon as one is free.

        Args:
            spot: Cheaper, and taken away whenever Google needs it.
        """
        words = (
            *self._tpu("queued-resources", "create", f"{self.name}-request"),
            f"--node-id={self.name}",
            f"--accelerator-type={self._type}",
            f"--runtime-version={self.version}",
            f"--service-account={self.account}",
            f"--valid-until-duration={PATIENCE}",
            *("--spot",) * spot,
        )
        look = self._tpu("queued-resources", "describe", f"{self.name}-request")
        return Commands(
            (
                Command("stand in line for the TPU", words, costs=True),
                Command("is it our turn? (state ACTIVE)", look),
            ),
            self.doubts,
        )

    def _worker(self, worker: int | str | None) -> tuple[str, ...]:
        if worker is None:
            return ()
        hosts = self.accelerator.hosts
        if worker != "all" and worker not in range(hosts):
            raise NoSuchWorker(
                f"There is no worker {worker!r:.40}.",
                f"A {self.accelerator.name} has {hosts} host{'s' * (hosts > 1)}, counted from 0.",
                f"Write a number from 0 to {hosts - 1}, or 'all'.",
            )
        return (f"--worker={worker if worker == 'all' else int(worker)}",)

    def ssh(self, command: str | None = None, worker: int | str | None = None) -> Commands:
        """Log in, or run one command there.

        Args:
            command: Anything that a shell on the VM understands; None: a session.
            worker: Number of the host, or ``all``; None: the first.

        Raises:
            NotText: The command is empty or holds a NUL character.
            NoSuchWorker: The TPU has fewer hosts.
        """
        rest = () if command is None else (f"--command={_check_text(command, 'command')}",)
        purpose = "log in" if command is None else "run it on the VM"
        words = (*self._tpu("tpu-vm", "ssh", self.name), *self._worker(worker), *rest)
        return Commands((Command(purpose, words),))

    def _copy(self, purpose: str, source: str, target: str, worker: int | str | None) -> Commands:
        words = (*self._tpu("tpu-vm", "scp", "--recurse", source, target), *self._worker(worker))
        return Commands((Command(purpose, words),))

    def upload(self, local: str, remote: str = "", worker: int | str | None = None) -> Commands:
        """Copy a file or folder to the VM.

        Args:
            local: A path here.
            remote: A path there; empty: the home folder.
            worker: Number of the host, or ``all``; None: the first.

        Raises:
            NotText: A path is empty or holds a NUL character.
            AmbiguousPath: A colon in ``local`` makes it look like another machine's.
            NoSuchWorker: The TPU has fewer hosts.
        """
        there = _check_text(f"{self.name}:{remote}", "path")
        return self._copy(f"copy to the VM{'s' * (worker == 'all')}", _local(local), there, worker)

    def download(self, remote: str, local: str = ".", worker: int | None = None) -> Commands:
        """Copy a file or folder from the VM.

        Args:
            remote: A path there.
            local: A path here.
            worker: Number of the host; None: the first.

        Raises:
            NotText: A path is empty or holds a NUL character.
            AmbiguousPath: A colon in ``local`` makes it look like another machine's.
            NoSuchWorker: The TPU has fewer hosts.
        """
        there = f"{self.name}:{_check_text(remote, 'path')}"
        return self._copy("copy from the VM", there, _local(local), worker)

    def delete(self) -> Commands:
        """Give the TPU back, with the request if it stood in line. Your bucket stays."""
        request = f"{self.name}-request"
        return Commands(
            (
                Command("give the TPU back", self._tpu("tpu-vm", "delete", self.name)),
                Command(
                    "if it stood in line: the request, and its TPU with it",
                    (*self._tpu("queued-resources", "delete", request), "--force"),
                ),
            )
        )

    def delete_bucket(self) -> Commands:
        """Delete the bucket with everything in it; nobody can bring it back."""
        words = ("gcloud", "storage", "rm", "--recursive", f"gs://{self.bucket}")
        return Commands((Command("delete the bucket and all its files", words),))

    def what_bills(self) -> Commands:
        """List what can cost money; lists that are empty cost nothing."""
        project = f"--project={self.project}"
        return Commands(
            (
                Command("TPUs in this zone", self._tpu("tpu-vm", "list")),
                Command("requests in line in this zone", self._tpu("queued-resources", "list")),
                Command(
                    "other machines, in all zones",
                    ("gcloud", "compute", "instances", "list", project),
                ),
                Command("disks, in all zones", ("gcloud", "compute", "disks", "list", project)),
                Command("addresses", ("gcloud", "compute", "addresses", "list", project)),
                Command("buckets", ("gcloud", "storage", "buckets", "list", project)),
            )
        )

    def check_tensorflow(self, version: str) -> None:
        """Compare a TensorFlow with the image's.

        Args:
            version: Such as ``tf.__version__``.

        Raises:
            Mismatch: The image has another release.
        """
        match = re.match(r"tpu-vm-tf-(\d+\.\d+\.\d+)", self.version)
        if match and version != match[1]:
            raise Mismatch(
                f"The image {self.version} has TensorFlow {match[1]}; yours is {version}.",
                "The image must match the TensorFlow that your model is written for "
                f"({RELEASES_SOURCE}, {CHECKED}).",
                f"Write your program for {match[1]}, or take the image of "
                f"helpers.tpu.cloud.runtime({version!r}, {self.accelerator.name!r}).",
            )


def _local(path: str) -> str:
    """Check a path on this machine; write one that begins with a dash so that it is no flag."""
    _check_text(path, "path")
    if ":" in path:
        raise AmbiguousPath(
            f"The path {path[:70]!r} holds a colon.",
            "gcloud reads NAME:PATH as a path on the machine NAME.",
            "Rename it, or change to its folder and write the last part alone.",
        )
    return f"./{path}" if path.startswith("-") else path
