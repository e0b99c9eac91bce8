"""Writing folders of records: what is there is kept, what is missing is written."""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psutil

from helpers.base.errors import CourseError
from helpers.base.folders import Folder, short
from helpers.text.records.encoder import Encoder, canonical, check_tokenizer
from helpers.text.records.format import (
    LONGEST_ROW,
    MANIFEST,
    TOKENIZER,
    Manifest,
    Settings,
    Shard,
    check_same,
    from_json,
    is_description,
    to_json,
)
from helpers.text.records.plan import Listed, Plan, Source, Sums, Target
from helpers.text.records.writing.workers import Machine

Done = Callable[[str, int], None]


def write(
    documents: Sequence[str],
    output: str | os.PathLike[str],
    tokenizer: Any,
    *,
    sequence_length: int = 128,
    shards: int = 8,
    seed: int = 0,
    pairs: bool = False,
    workers: int = 1,
) -> Manifest:
    """Write documents as packed rows, and their manifest; go on where an earlier run stopped.

    The bytes depend on documents, tokenizer, ``sequence_length``, ``shards``, ``seed`` and
    ``pairs`` alone.

    Args:
        documents: The texts.
        output: Folder here or ``gs://bucket/folder``.
        tokenizer: A ``BertTokenizerFast``, a ``tokenizers`` tokenizer, or a ``tokenizer.json``.
        sequence_length: Positions per row. Longer documents become several sequences.
        shards: Number of files. For training, some 100 MB each, and several per reading machine.
        seed: Distributes documents over the shards, and shuffles them there.
        pairs: Write sequences ``[CLS] A [SEP] B [SEP]``, packed as others are: in one half of
            them B follows A in the document, in the other it comes from another document of the
            shard (BERT's paper, section 3.1, task 2). ``token_type_ids`` is 1 on B,
            ``random_next`` 1 on the ``[CLS]`` of the other half. The same in each epoch.
            Documents of a single token are left out.
        workers: Processes that write shards side by side. More than one needs a script whose
            main part stands under ``if __name__ == "__main__":``.

    Raises:
        OtherTokenizer, OtherSettings: The folder holds other records.
        ShardDamaged: What an earlier run wrote was changed since.
        files.CantWrite: The disk is full, or nothing can be written there.
        CourseError: A document, a number or the tokenizer can't be used, or the folder holds
            records of other documents, or some of an earlier version.
    """
    options = {"sequence_length": sequence_length, "shards": shards, "seed": seed, "pairs": pairs}
    plan = plan_of(os.fspath(output), tokenizer, **options)
    return write_all([Listed(documents)], plan, workers)[0][0]


def plan_of(
    output: str, tokenizer: Any, *, held_out: str | None = None, pairs: bool = False, **options: int
) -> Plan:
    """Plan records, and a tenth as many shards of held-out documents, which stay whole.

    ``held_out`` is the folder for the documents that `corpus.held_out` names; None: write all
    alike. The rest is as for `write`.

    Raises:
        CourseError: A number or the tokenizer can't be used.
    """
    check_options(pairs=pairs, **options)
    backend = Encoder(tokenizer).backend
    text = canonical(backend)
    settings = Settings(
        tokenizer_sha256=hashlib.sha256(text).hexdigest(),
        vocabulary=backend.get_vocab_size(),
        pairs=pairs,
        **options,
    )
    targets = [Target(output, settings)]
    if held_out is not None:
        fewer = max(1, settings.shards // 10)
        apart = dataclasses.replace(settings, pairs=False, shards=fewer)
        targets.append(Target(held_out, apart))
    return Plan(tuple(targets), text.decode())


def write_all(
    sources: Sequence[Source],
    plan: Plan,
    workers: int = 1,
    done: Done = lambda what, documents: None,
) -> tuple[list[Manifest], Sums]:
    """Write what is missing of a plan, from any number of sources, in the memory of a few.

    Sources are read once, side by side if there are several ``workers``. Their documents are sorted
    on the disk of the folder (of temporary files for a bucket), which takes the room of the text.
    Gives the manifest of each folder that has documents, and what was read.

    Args:
        sources: What to read. Their order doesn't count; their names and places do.
        plan: From `plan_of`.
        workers: As for `write`.
        done: Called with ``read`` and the bytes of sources just read, ``found`` and how many
            documents there are, ``written`` and the number of documents just finished.

    Raises:
        CourseError: As `write`.
    """
    finished = found(plan)
    missing = [at for at in range(len(plan.shards)) if at not in finished]
    with _room(plan) as room, Machine(plan, room, workers) as machine:
        sums, runs = machine.sort(sources, set(missing), done)
        check_documents(plan, finished, sums)
        missing = [at for at in missing if has_documents(plan, at, sums)]
        done("found", sum(sums.documents))
        for shard in finished.values():
            done("written", shard.documents)
        prepare_folders(plan, missing)
        machine.write(missing, runs, done)
    return join(plan, sums, changed=bool(missing)), sums


@contextlib.contextmanager
def _room(plan: Plan) -> Iterator[pathlib.Path]:
    """Give a folder for what is sorted, that need not exist yet; another run's remains go."""
    folder = Folder(plan.targets[0].path)
    if folder.remote:
        with tempfile.TemporaryDirectory() as room:
            yield pathlib.Path(room)
        return
    room = pathlib.Path(folder.absolute, f".sorted-{os.getpid()}")
    for left in room.parent.glob(".sorted-*"):
        if not psutil.pid_exists(int(left.name.rpartition("-")[2])):
            shutil.rmtree(left, ignore_errors=True)
    try:
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)


def has_documents(plan: Plan, shard: int, sums: Sums) -> bool:
    """Tell whether a shard's folder gets any document: without one it isn't written."""
    first = plan.targets[0].settings.shards
    return shard < first or any(sums.documents[first:])


def found(plan: Plan) -> dict[int, Shard]:
    """Give the finished shards of a plan, by number; each is there and whole.

    Raises:
        OtherTokenizer, OtherSettings, ShardDamaged, CourseError: As `write`.
    """
    finished, at = {}, 0
    for target in plan.targets:
        folder = Folder(target.path)
        described = _described(folder, target.settings)
        if (there := folder.read(TOKENIZER)) is not None:
            check_tokenizer(there, target.settings, folder.path)
        sizes = set(folder.list())
        whole = {}
        for number, (_, name) in enumerate(plan.shards[at : at + target.settings.shards], at):
            if name in described and name in sizes:
                described[name].check(folder.pieces(name))
                whole[number] = described[name]
        if any(not shard.text for shard in described.values()) and (
            len(whole) < target.settings.shards or MANIFEST not in sizes
        ):
            raise CourseError(
                f"{short(folder.path)} holds some records of an earlier version of the course.",
                "The others can't be added: documents go to other shards now.",
                "Write to another folder, or delete this one.",
            )
        finished |= whole
        at += target.settings.shards
    return finished


def check_documents(plan: Plan, finished: dict[int, Shard], sums: Sums) -> None:
    """Compare the documents that were read with those that finished shards were made of.

    Raises:
        CourseError: There are none to train on, or a shard was made of others.
    """
    if not any(sums.documents[: plan.targets[0].settings.shards]):
        raise CourseError(
            "There are no documents.",
            "Nothing was left of the input, or the list is empty.",
            "Check what you pass; corpus.documents gives those of which something is left.",
        )
    for at, shard in finished.items():
        if shard.text not in ("", f"{sums.digests[at]:016x}"):
            raise CourseError(
                f"{shard.name} was made of other documents.",
                "The settings are the same, but a text, its file's name or its place differs.",
                "Write to another folder, or delete this one.",
            )


def prepare_folders(plan: Plan, missing: Sequence[int]) -> None:
    """Lay the tokenizer beside the shards that are going to be written."""
    for path in dict.fromkeys(plan.shards[at][0].path for at in missing):
        folder = Folder(path)
        if not folder.exists(TOKENIZER):
            folder.write(TOKENIZER, plan.tokenizer)


def made_of(table: Manifest, sources: Sequence[Source], *, held_out: bool) -> bool:
    """Tell whether records were made of these very documents, some held out of them or none."""
    targets = [Target(table.path, table.settings)] * (1 + held_out)
    plan = Plan(tuple(targets), "")
    sums = Sums.zero(len(plan.shards))
    for source in sources:
        for document in source.documents():
            sums.add(*plan.entry(document))
    pairs = zip(table.shards, sums.digests, strict=False)
    return all(shard.text == f"{digest:016x}" for shard, digest in pairs)


def join(plan: Plan, sums: Sums, *, changed: bool) -> list[Manifest]:
    """Collect the finished shards of each folder, and write its manifest when all are there."""
    made = []
    for target in plan.targets:
        folder = Folder(target.path)
        described = tuple(_described(folder, target.settings).values())
        if not described:
            continue
        made.append(Manifest(target.path, target.settings, described))
        if made[-1].complete and (changed or not folder.exists(MANIFEST)):
            shards = [vars(shard) for shard in described]
            cleaning = {"cleaning": _cleaning(plan, sums)} if plan.rules else {}
            folder.write(MANIFEST, to_json(target.settings, shards=shards, **cleaning))
    return made


def _cleaning(plan: Plan, sums: Sums) -> dict[str, Any]:
    """Give each rule, and how many documents of all folders it left out or counted."""
    names = sorted({name for _, report in sums.reports for name in report.get("left_out", {})})
    counts = {name: sum(report["left_out"][name] for _, report in sums.reports) for name in names}
    return {"rules": plan.rules, "left_out": counts}


def _described(folder: Folder, settings: Settings) -> dict[str, Shard]:
    """Read the descriptions that are there; refuse those of other settings."""
    if (data := folder.read(MANIFEST)) is not None:
        check_same(folder.path, from_json(MANIFEST, data)[0], settings)
    finished = {}
    # Also those of another number of shards: with other names they would never be completed.
    for name in filter(is_description, folder.list()):
        if (data := folder.read(name)) is not None:
            there, (shard,) = from_json(name, data)
            check_same(folder.path, there, settings)
            finished[shard.name] = shard
    return finished


def check_options(sequence_length: int, shards: int, seed: int, pairs: bool) -> None:
    """Refuse numbers that `write` can't use, whatever the documents are.

    Raises:
        CourseError: A number is out of its range.
    """
    least = 7 if pairs else 3
    if not least <= sequence_length <= LONGEST_ROW:
        short = (
            "[CLS] and two [SEP] take three positions of each pair; each half needs two."
            if pairs
            else "[CLS] and [SEP] take two positions of each sequence, so no token would fit."
        )
        raise CourseError(
            f"sequence_length is {sequence_length:,}.",
            short if sequence_length < least else "Positions are stored as 16-bit numbers.",
            f"Take 128, or from {least} to {LONGEST_ROW:,}.",
        )
    if not 1 <= shards < 100_000:
        raise CourseError(
            f"shards is {shards:,}.",
            "It is the number of files, and their names have five digits for it.",
            "Ask for 1 to 99,999; for much text so many that each has some 100 MB.",
        )
    if not 0 <= seed < 2**32:
        raise CourseError(
            f"seed is {seed:,}.",
            "The order is drawn from 32 bits of it.",
            "Take a whole number from 0 to 4,294,967,295.",
        )
