"""One partition's log on disk, in Kafka's own files. Knows no broker."""
