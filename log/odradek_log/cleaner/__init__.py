"""Log compaction: keep the last record of each key (Kafka's LogCleaner).

`log_to_clean` decides which part of a log is cleaned and whether that is worth it. `cleaner` cleans one log:
`offset_map` has the last offset of each key, `batch_filter` and `transaction_metadata` decide about each batch,
`cleaned_segment` writes the new segment, and `segment_replacement` puts it in place of the old ones. The broker's
LogCleaner decides when and on which thread a log is cleaned.
"""
