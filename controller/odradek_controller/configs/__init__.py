"""Every configuration of Kafka: definitions, valid values, defaults, synonyms, layers.

Leaves the effect of a configuration to the component that reads it; `in_use` lists the configurations that have one.
"""
