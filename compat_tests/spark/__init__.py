"""Spark's own Kafka connector, unmodified, batch and streaming.

Runs with the PySpark that is imported: 4.0 from the project's environment, 3.5 by `compat_tests/spark/with-spark-3.5`.
"""
