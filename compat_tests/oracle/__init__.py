"""The same request to Apache Kafka and to the broker under test, and the responses compared field by field.

`schema` is a codec of its own, which interprets the message definitions in Kafka's jars and shares nothing with
odradek_wire; `peer` is a connection to one broker, `pair` sends to both and compares, `differences` lists the allowed
differences with reasons.
"""
