"""The same request to Apache Kafka and to the broker under test, and the answers compared field by field.

`schema` is a codec of its own, an interpreter of the facts in Kafka's jars that shares nothing with odradek_wire;
`peer` is a connection to one broker, `pair` sends to both and compares, `differences` lists what may differ and why.
"""
