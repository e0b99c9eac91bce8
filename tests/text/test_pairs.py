"""The paper's next sentence prediction: pairs, taken apart by hand."""

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import TOKENIZER, batches, plain, refused, rows_of, write

from helpers.base.errors import CourseError
from helpers.text import records

pytestmark = pytest.mark.slow


def pairs_of(manifest):
    """Take the rows apart by [CLS] and [SEP] alone: (A, B, whether B is a random next)."""
    tokenizer = tokenizers.Tokenizer.from_file(f"{manifest.path}/{records.TOKENIZER}")
    cls, sep = map(tokenizer.token_to_id, ("[CLS]", "[SEP]"))
    rows, found = plain(manifest), []
    for ids, segments, types, random_next in zip(
        *(rows[n] for n in ("input_ids", "attention_mask", "token_type_ids", "random_next")),
        strict=True,
    ):
        assert not types[segments == 0].any() and not random_next[segments == 0].any()
        for number in range(1, segments.max() + 1):
            here = segments == number
            sequence = ids[here].tolist()
            middle = sequence.index(sep)
            assert sequence[0] == cls and sequence[-1] == sep and sequence.count(sep) == 2
            first, second = sequence[1:middle], sequence[middle + 1 : -1]
            assert first and second and max(len(first), len(second)) <= (len(ids) - 3) // 2
            assert types[here].tolist() == [0] * (middle + 1) + [1] * (len(second) + 1)
            assert not random_next[here][1:].any()
            found.append((tuple(first), tuple(second), bool(random_next[here][0])))
    return found


@pytest.fixture(scope="module")
def paired(texts, tmp_path_factory):
    return write(texts, tmp_path_factory.mktemp("paired"), shards=2, pairs=True)


def follows(first, second, documents):
    """Look through all documents for A with B behind it."""
    both = first + second
    return any(
        document[at : at + len(both)] == both
        for document in documents
        for at in range(len(document) - len(both) + 1)
    )


@pytest.fixture(scope="module")
def documents(texts, hugging_face):
    return [tuple(ids[1:-1]) for ids in hugging_face(texts)["input_ids"]]


def test_b_follows_a_in_one_half_of_the_pairs_and_in_no_document_in_the_other(
    documents, hugging_face, paired
):
    found = pairs_of(paired)
    random_nexts = sum(random_next for *_, random_next in found)
    assert abs(random_nexts / len(found) - 0.5) < 0.01
    starts = {token for token in range(3000) if not hugging_face.decode(token).startswith("##")}
    cut_inside = 0
    for first, second, random_next in found:
        assert follows(first, second, documents) is not random_next
        cut_inside += second[0] not in starts
    assert cut_inside < 0.02 * len(found)
    # The lengths don't tell: the distributions of the difference are as near as chance has them.
    more = [
        np.sort([len(a) - len(b) for a, b, random_next in found if random_next is which])
        for which in (False, True)
    ]
    at = np.unique(np.concatenate(more))
    below = [np.searchsorted(some, at, side="right") / len(some) for some in more]
    assert np.abs(below[0] - below[1]).max() < 1.36 * (2 / min(map(len, more))) ** 0.5
    # Nothing is lost and nothing is seen twice; a document of one token can't be cut.
    kept = [document for document in documents if len(document) > 1]
    assert sorted(t for a, b, _ in found for t in a + b) == sorted(t for d in kept for t in d)
    assert paired.sequences == len(found)
    assert paired.tokens == sum(map(len, kept)) + 3 * len(found)


def test_a_random_next_is_of_another_document_of_any_kind(paired, documents):
    """The halves of each document's pairs, counted by hand: partners spread over all documents."""
    korean = {document for at, document in enumerate(documents) if at % 2 == 0}
    by_half = {}
    for document in documents:
        for at in range(1, len(document)):
            by_half.setdefault(document[at:], document in korean)
    across = [
        any(a == d[: len(a)] for d in korean) != by_half[b]
        for a, b, random_next in pairs_of(paired)
        if random_next and b in by_half
    ]
    # Documents alternate between two languages: a blind draw crosses over every second time.
    assert len(across) > 200 and abs(np.mean(across) - 0.5) < 4 * 0.5 / len(across) ** 0.5


def test_halves_that_follow_each_other_anywhere_are_no_random_pair(tmp_path):
    texts = ["하나 둘", "하나 둘", "하나 둘", "하나 셋"] * 3
    manifest = records.write(texts, tmp_path, TOKENIZER, sequence_length=16, shards=1, pairs=True)
    assert not any(random_next for *_, random_next in pairs_of(manifest))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.text("가나다 ab", min_size=1, max_size=60), min_size=4, max_size=12),
    st.integers(7, 40),
    st.integers(0, 5),
)
def test_pairs_of_any_text_hold_their_promises(tmp_path_factory, some, length, seed):
    folder = tmp_path_factory.mktemp("some")
    some = [f"{number} 가 {text}" for number, text in enumerate(some)]
    options = {"sequence_length": length, "shards": 1, "seed": seed, "pairs": True}
    encode = records.Encoder(TOKENIZER)
    documents = [tuple(np.frombuffer(ids, encode.type).tolist()) for ids in encode(some)]
    try:
        found = pairs_of(records.write(some, folder, TOKENIZER, **options))
    except CourseError as error:
        assert "too few documents" in error.what
        assert max(map(len, documents)) > (length - 3) // 2 * 2  # one document has several pairs
        return
    for first, second, random_next in found:
        assert random_next or follows(first, second, documents)
        told = [after for before, after, other in found if before == first and not other]
        assert not random_next or not any(after[: len(second)] == second for after in told)
    assert sorted(t for a, b, _ in found for t in a + b) == sorted(t for d in documents for t in d)


def test_pairs_have_another_order_with_another_seed(texts, paired, tmp_path):
    other = write(texts, tmp_path / "other", seed=1, shards=2, pairs=True)
    assert sorted(pairs_of(other)) != sorted(pairs_of(paired))


def test_pairs_are_read_with_the_rows(paired):
    (batch,) = batches(paired.path, 1)
    assert set(batch) == set(paired.features)
    assert batch["random_next"].max() == batch["token_type_ids"].max() == 1
    assert set(rows_of(batches(paired.path, 2))) <= set(rows_of([plain(paired)]))


def test_pairs_that_cant_be_made_are_refused(tmp_path):
    some = ["하나 둘 셋 넷", "다섯 여섯 일곱", "여덟 아홉 열"]
    book = ["하나 둘 셋 넷 다섯 " * 200, *some]
    for texts, options, words in (
        (some, {"shards": 2}, "(?s)too few documents.*fewer shards"),
        (book, {"shards": 1}, "(?s)too few documents.*of one document"),
    ):
        refused(words, texts, tmp_path, pairs=True, **options)
