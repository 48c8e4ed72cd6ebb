"""A small blocking Kafka client, for the command line, readiness checks and `Cluster`.

`blocking_connection` speaks to one broker, `client` finds the broker that serves a request, `records` produces and
fetches. It is not fast, it does not join groups, and it works with every Kafka broker.
"""

from odradek.client.blocking_connection import BlockingConnection
from odradek.client.client import Client
from odradek.exceptions import ClientError, KafkaError

__all__ = ["BlockingConnection", "Client", "ClientError", "KafkaError"]
