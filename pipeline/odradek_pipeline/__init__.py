"""A streaming PySpark job over any cluster that speaks the Kafka protocol.

The job counts the views of each page in each window of event time, from a topic to a topic and to Parquet.

    page_views       the computation: pure functions from DataFrame to DataFrame
    job              the streaming queries: sinks, checkpoints, progress, stopping
    progress         Spark's report of a micro-batch, as a value and as a line
    pipeline_config  the settings of the job
    spark_session    a SparkSession with the Kafka connector, whose jars `connector_jars` finds
    cli              `odradek pipeline`, also `python -m odradek_pipeline`

It uses Kafka only through Spark's connector, and imports nothing of Odradek's broker. PySpark comes with the extra
`odradek[spark]`; `pipeline_config`, `progress`, `connector_jars` and `cli` can be imported without it.
"""
