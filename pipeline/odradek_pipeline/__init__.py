"""A streaming PySpark job over any cluster that speaks the Kafka protocol.

The job counts the views of each page in each window of event time, from a topic to a topic and to Parquet.

    page_views   the computation: pure functions from DataFrame to DataFrame
    job          the streaming queries: sinks, checkpoints, progress, stopping
    progress     Spark's report of a micro-batch, as a value and as a line
    config       the settings of the job
    session      a SparkSession with the Kafka connector, whose jars `jars` finds
    cli          `odradek pipeline`, also `python -m odradek_pipeline`

It uses Kafka only through Spark's connector, and imports nothing of Odradek's broker. PySpark comes with the extra
`odradek[spark]`; `config`, `progress`, `jars` and `cli` can be imported without it.
"""
