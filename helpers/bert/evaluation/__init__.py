"""Whether a BERT learned, on text it has not seen: its guesses, and what its states hold."""

from helpers.bert.evaluation.masked import (
    Evaluation,
    FixedMasks,
    Score,
    evaluate,
    evaluate_records,
    evaluate_shipped,
    fix_masks,
    score,
)
from helpers.bert.evaluation.ngram import NGram, fit_ngram
from helpers.bert.evaluation.probing import ASKED, Probe, probe
