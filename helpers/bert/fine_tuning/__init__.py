"""A pretrained BERT taught to tell labels of texts: data, batches, model, run, evaluation."""
