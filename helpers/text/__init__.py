"""Text of every length as training rows: documents, corpus, buckets, packing, records, masks."""
