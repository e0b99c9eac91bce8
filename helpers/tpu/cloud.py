"""The gcloud commands that take an empty Google Cloud project to a TPU VM and back.

Commands are built and checked here, never run: they cost money, and the account is yours. They
were compared with Google's reference, not tried on Google Cloud.
"""

import dataclasses
import re

from helpers.base.errors import CourseError
from helpers.tpu import runtimes
from helpers.tpu.commands import Command, Commands
from helpers.tpu.facts import facts
from helpers.tpu.runtimes import runtime
from helpers.tpu.zones import CHECKED, PAGE, READ_WHOLLY, zones
from tpu_preflight.chips.hardware import Slice, slice_of

# What notebooks ask here, wherever it is written.
__all__ = ["InvalidName", "Mismatch", "NotInZone", "TpuVm", "runtime", "zones"]

ACCOUNT = "tpu-course"  # the service account as which the VM reads and writes the bucket
PATIENCE = "12h"  # then a request lapses, so that none starts to cost money days later

_STEPS = facts("gcloud.toml")


class InvalidName(CourseError):
    """A name has a form that Google Cloud refuses."""


class NotInZone(CourseError):
    """This type of TPU is not rented in this zone."""


class Mismatch(CourseError):
    """Your TensorFlow is not the image's."""


def _check_text(text: str, what: str) -> str:
    """Refuse what can't be an argument of a program."""
    try:
        usable = bool(text.strip()) and b"\0" not in text.encode()
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise CourseError(
            f"The {what} is empty or has characters that no program can receive.",
            "A command can't contain a NUL character or half a character.",
            f"Type the {what} again.",
        )
    return text


@dataclasses.dataclass(frozen=True)
class TpuVm:
    """A TPU VM that you mean to rent: checked when it is made, then asked for its commands.

    Every command names project and zone, so none depends on what ``gcloud config`` holds. A
    `CourseError` refuses a worker that the TPU doesn't have, a command or path that is empty or
    holds a NUL character, and a path here with a colon, which looks like another machine's.

    Attributes:
        project: ID of your Google Cloud project.
        zone: Such as ``us-west4-a``.
        accelerator_type: Such as ``v5e-8`` (or ``v5litepod-8``, the same).
        version: The image: see `runtime`.
        name: Of the TPU.
        bucket: Without ``gs://``; None: the project's ID and the TPU's name.

    Raises:
        InvalidName: A name has a form that Google Cloud refuses.
        NotInZone: The type is not rented in this zone.
        UnknownAccelerator: There is no such type of TPU.
        CourseError: There is no such image, or it does not fit the TPU.
    """

    project: str
    zone: str
    accelerator_type: str
    version: str
    name: str = "tpu-course"
    bucket: str | None = None

    def __post_init__(self) -> None:
        if self.bucket is None:
            object.__setattr__(self, "bucket", f"{self.project}-{self.name}"[:63].rstrip("-"))
        for kind, name in _STEPS["names"].items():
            value = getattr(self, kind)
            if not re.fullmatch(name["pattern"], value, re.ASCII):
                what = f"{value[:70]!r} is no {kind}{' of a TPU' * (kind == 'name')}."
                raise InvalidName(what, f"It must be {name['rule']}.", name["fix"])
        runtimes.check(self.version, self.accelerator)
        if self.doubts and self.zone.startswith(READ_WHOLLY):
            known = ", ".join(zones(self.accelerator_type).names)
            raise NotInZone(
                f"No {self.accelerator.name} is rented in {self.zone}.",
                f"It is in {known} ({PAGE}, {CHECKED}).",
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
        if self.zone in zones(self.accelerator_type).names:
            return ()
        return (f"whether {self.zone} has a {self.accelerator.name}; see {PAGE}",)

    def __repr__(self) -> str:
        bucket = f"gs://{self.bucket} in {self.region}"
        return f"{self.accelerator}\nimage {self.version}, zone {self.zone}, bucket {bucket}"

    def _commands(self, step: str, *more: str, **words: str) -> Commands:
        """Fill in the commands of a step; ``more`` are their last words, with any characters."""
        project = f"--project={self.project}"
        words |= {
            "project": project,
            "where": f"{project} --zone={self.zone}",
            "region": self.region,
            "short_account": ACCOUNT,
            "account": self.account,
            "bucket": f"gs://{self.bucket}",
            "name": self.name,
            # The API's own name of the type.
            "type": f"--accelerator-type={self.accelerator.name.replace('v5e-', 'v5litepod-')}",
            "version": self.version,
            "patience": PATIENCE,
        }
        return Commands(
            tuple(
                Command(
                    row["purpose"].format(**words),
                    ("gcloud", *row["words"].format(**words).split(), *more),
                    row.get("costs", False),
                )
                for row in _STEPS[step]
            ),
            self.doubts if step in ("create", "queue") else (),
        )

    def prepare(self) -> Commands:
        """Prepare a project, once: APIs, a service account, a bucket near the TPU, a permission."""
        return self._commands("prepare")

    def create(self, spot: bool = False) -> Commands:
        """Rent the TPU now, or fail at once if none is free; ``spot`` may be taken away."""
        spare = ", as long as Google can spare it" * spot
        return self._commands("create", spot="--spot" * spot, while_spare=spare)

    def queue(self, spot: bool = False) -> Commands:
        """Wait in line for the TPU; you have it, and pay for it, as soon as one is free."""
        return self._commands("queue", spot="--spot" * spot)

    def _worker(self, worker: int | str | None) -> tuple[str, ...]:
        if worker is None:
            return ()
        hosts = self.accelerator.hosts
        if worker != "all" and worker not in range(hosts):
            raise CourseError(
                f"There is no worker {worker!r:.40}.",
                f"A {self.accelerator.name} has {hosts} host{'s' * (hosts > 1)}, counted from 0.",
                f"Write a number from 0 to {hosts - 1}, or 'all'.",
            )
        return (f"--worker={worker if worker == 'all' else int(worker)}",)

    def ssh(self, command: str | None = None, worker: int | str | None = None) -> Commands:
        """Log in, or run one command there, on one host (None: the first) or ``all``."""
        if command is None:
            return self._commands("log_in", *self._worker(worker))
        run = f"--command={_check_text(command, 'command')}"
        return self._commands("run", *self._worker(worker), run)

    def upload(self, local: str, remote: str = "", worker: int | str | None = None) -> Commands:
        """Copy a file or folder to the VM's home folder or ``remote``; ``worker`` as for `ssh`."""
        there, last = _check_text(f"{self.name}:{remote}", "path"), self._last(worker)
        return self._commands("upload", _local(local), there, *last, s="s" * (worker == "all"))

    def download(self, remote: str, local: str = ".", worker: int | None = None) -> Commands:
        """Copy a file or folder from the VM; ``worker`` is the number of the host."""
        there = f"{self.name}:{_check_text(remote, 'path')}"
        return self._commands("download", there, _local(local), *self._last(worker))

    def _last(self, worker: int | str | None) -> tuple[str, ...]:
        return (f"--project={self.project}", f"--zone={self.zone}", *self._worker(worker))

    def delete(self) -> Commands:
        """Give the TPU back, with the request if it stood in line. Your bucket stays."""
        return self._commands("delete")

    def delete_bucket(self) -> Commands:
        """Delete the bucket with everything in it; nobody can bring it back."""
        return self._commands("delete_bucket")

    def what_bills(self) -> Commands:
        """List what can cost money; an empty list costs nothing."""
        return self._commands("what_bills")

    def check_tensorflow(self, version: str) -> None:
        """Compare a TensorFlow, such as ``tf.__version__``, with the image's.

        Raises:
            Mismatch: The image has another release.
        """
        match = re.match(r"tpu-vm-tf-(\d+\.\d+\.\d+)", self.version)
        if match and version != match[1]:
            raise Mismatch(
                f"The image {self.version} has TensorFlow {match[1]}; yours is {version}.",
                "The image must match the TensorFlow that your model is written for "
                f"({runtimes.SOURCE}).",
                f"Write your program for {match[1]}, or take the image of "
                f"helpers.tpu.cloud.runtime({version!r}, {self.accelerator.name!r}).",
            )


def _local(path: str) -> str:
    """Check a path on this machine; write one that begins with a dash so that it is no flag."""
    _check_text(path, "path")
    if ":" in path:
        raise CourseError(
            f"The path {path[:70]!r} contains a colon.",
            "gcloud reads NAME:PATH as a path on the machine NAME.",
            "Rename it, or change to its folder and give the last part alone.",
        )
    return f"./{path}" if path.startswith("-") else path
