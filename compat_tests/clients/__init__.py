"""Every client under test behind one interface (`model.Client`)."""

from odradek_peers import KAFKA_3_9, KAFKA_4_3

from compat_tests.clients.aiokafka import AioKafka
from compat_tests.clients.confluent import Confluent
from compat_tests.clients.java_console import JavaConsole
from compat_tests.clients.kafka_python import KafkaPython
from compat_tests.clients.kcat import Kcat
from compat_tests.clients.model import ALL_CODECS, Abilities, Client, Message, Record

CLIENTS: tuple[Client, ...] = (
    Confluent(),
    KafkaPython(),
    KafkaPython(old=True),
    AioKafka(),
    Kcat(),
    JavaConsole(KAFKA_4_3),
    JavaConsole(KAFKA_3_9),
)

LIBRARIES: tuple[Client, ...] = CLIENTS[:4]
"""The clients with an interface for programs: binary content, timestamps, chosen partitions."""

OLD_PROTOCOLS: tuple[Client, ...] = tuple(
    KafkaPython(old=True, api_version=version) for version in ((0, 9), (0, 10, 0), (0, 10, 2), (0, 11, 0), (1, 0, 0))
)
"""kafka-python 2.0.2 with the protocol of old brokers: message sets, Produce 1, Fetch 1, and so on."""

__all__ = ["ALL_CODECS", "CLIENTS", "LIBRARIES", "OLD_PROTOCOLS", "Abilities", "Client", "Message", "Record"]
