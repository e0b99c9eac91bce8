import numpy as np
import pytest
import tensorflow as tf
from packed_text import CONFIG
from small_runs import SAVE, STEPS, saved, train
from transformers import TFBertForMaskedLM

from helpers.bert.data import prepare_shipped
from helpers.bert.model import TFPackedBertForMaskedLM


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Real text as records, with its held-out part left out."""
    return prepare_shipped(tmp_path_factory.mktemp("data"), sequence_length=64)


@pytest.fixture(scope="session")
def whole(data, tmp_path_factory):
    """A run that nothing disturbed."""
    output = tmp_path_factory.mktemp("whole")
    run = train(data, output)
    assert run.step == STEPS
    assert run.resumed == 0
    assert run.stopped is None
    assert saved(output) == [STEPS, STEPS - SAVE]
    return output


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """An ordinary BERT, and a packed one with its weights, read from its files."""
    tf.keras.utils.set_random_seed(1)
    folder = tmp_path_factory.mktemp("bert")
    ordinary = TFBertForMaskedLM(CONFIG)
    ordinary(np.ones((1, 4), np.int32))
    ordinary.save_pretrained(folder)
    return ordinary, TFPackedBertForMaskedLM.from_pretrained(folder)
