"""Every configuration of Kafka: definitions, valid values, defaults, synonyms, layers.

Owns the facts and their meaning. Which component obeys which is the component's affair; `in_use` lists those.
"""
