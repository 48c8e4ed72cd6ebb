"""PySpark jobs over any cluster that speaks the Kafka protocol.

The job here counts page views: topic -> views of each page in each window of event time -> topic and Parquet.

    page_views   what the job computes: pure functions from DataFrame to DataFrame
    job          how it runs: queries, sinks, checkpoints, progress, stopping
    progress     what Spark says about a micro-batch, as a value and as a line
    config       what a user decides
    session      a SparkSession that can talk to Kafka, with the connector's jars from `jars`
    cli          `odradek pipeline`, also `python -m odradek_pipeline`

It knows Kafka only through Spark's connector, and nothing of Odradek's broker. PySpark comes with the extra
`odradek[spark]`; `config`, `progress`, `jars` and `cli` can be imported without it.
"""
