"""Log compaction: of each key's records the last one stays (Kafka's LogCleaner).

`plan` decides what may be cleaned and whether that is worth it, `cleaning` does it to one log, `offset_map` knows the
last offset of each key, `batch_filter` and `transactions` decide what becomes of a batch, `target` writes the segment
that takes the place of others, `swap` puts it there. When a log is cleaned, and on which thread, is the broker's
matter.
"""
