"""A small blocking Kafka client: what the command line, readiness checks and `Cluster(process=True)` need of one.

`connection` speaks to one broker, `client` finds the right one, `records` reads and writes them. It makes no promise
of speed, does not join groups, and works against any Kafka.
"""

from odradek.client.client import Client
from odradek.client.connection import Connection
from odradek.exceptions import ClientError, KafkaError

__all__ = ["Client", "ClientError", "Connection", "KafkaError"]
