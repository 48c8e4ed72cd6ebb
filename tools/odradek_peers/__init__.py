"""Apache Kafka beside Odradek: its jars, its tools and its server, for tests and benchmarks; and Apache ZooKeeper.

Owns getting the jars (`jars`), running one of Kafka's Java tools (`tools`), running Kafka itself (`server`, `cluster`),
running ZooKeeper (`zookeeper`) and clients of other ages that cannot live in the same environment (`old_clients`). Not
part of the distribution, and depends on nothing of it: these are the witnesses.
"""

from odradek_peers.cluster import KafkaCluster
from odradek_peers.jars import (
    KAFKA_1_1,
    KAFKA_3_9,
    KAFKA_4_0,
    KAFKA_4_3,
    ZOOKEEPER,
    connect_libs,
    libs,
    streams_libs,
    zookeeper_libs,
)
from odradek_peers.server import ApacheKafka
from odradek_peers.tools import JavaTools, RunningTool, ToolFailed
from odradek_peers.zookeeper import ZooKeeperServer

__all__ = [
    "KAFKA_1_1",
    "KAFKA_3_9",
    "KAFKA_4_0",
    "KAFKA_4_3",
    "ZOOKEEPER",
    "ApacheKafka",
    "JavaTools",
    "KafkaCluster",
    "RunningTool",
    "ToolFailed",
    "ZooKeeperServer",
    "connect_libs",
    "libs",
    "streams_libs",
    "zookeeper_libs",
]
