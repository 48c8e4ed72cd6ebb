"""What a broker counts, in Prometheus' text format, under the names of Kafka's own metrics (domain_type_name).

Owns which figures there are and how they are written. Nothing is registered anywhere, and nothing is computed until
somebody asks: requests count in their routes, bytes and records in their partitions. Leaves the port to `network.http`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek_wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_broker.network.server import Server

Labels = Mapping[str, str]
NONE: Labels = {}


class Metric(NamedTuple):
    """One name with its values by labels."""

    name: str
    kind: str
    help: str
    values: list[tuple[Labels, float]]


def render(metrics: Iterable[Metric]) -> str:
    """Prometheus' text format, version 0.0.4."""
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {metric.help}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for labels, value in metric.values:
            shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{{{shown}}} {value:.17g}" if shown else f"{metric.name} {value:.17g}")
    return "\n".join([*lines, ""])


def collect(broker: Broker, server: Server, loop_lag_s: float) -> Iterator[Metric]:
    """Everything that is known now."""
    yield from _requests(server)
    yield from _topics(broker)
    yield from _partitions(broker)
    yield from _cluster(broker)
    yield from _cleaner(broker)
    yield _gauge("kafka_server_socket_server_metrics_connection_count", "Open connections.", len(server.connections))
    yield _gauge("kafka_network_SocketServer_MemoryPoolUsed", "Bytes held for clients.", server.buffers.budget.used)
    yield _gauge("kafka_server_DelayedOperationPurgatory_PurgatorySize", "Requests that wait.", len(broker.purgatory))
    yield _gauge(
        "kafka_server_FetchSessionCache_NumIncrementalFetchSessions", "Fetch sessions.", len(broker.fetch_sessions)
    )
    yield _gauge("odradek_event_loop_lag_seconds", "How late the event loop was, lately.", loop_lag_s)


def _requests(server: Server) -> Iterator[Metric]:
    counted: Counter[tuple[str, int]] = Counter()
    for routes in server.routes:
        for route in routes.known.values():
            counted[route.key.name, route.version] += route.requests
    yield Metric(
        "kafka_network_RequestMetrics_RequestsPerSec_total",
        "counter",
        "Requests handled.",
        [({"request": name, "version": str(version)}, count) for (name, version), count in counted.items()],
    )


def _topics(broker: Broker) -> Iterator[Metric]:
    counted: dict[str, Counter[str]] = {
        "MessagesInPerSec": Counter(),
        "BytesInPerSec": Counter(),
        "BytesOutPerSec": Counter(),
    }
    for partition in broker.partitions:
        counted["MessagesInPerSec"][partition.topic] += partition.messages_in
        counted["BytesInPerSec"][partition.topic] += partition.bytes_in
        counted["BytesOutPerSec"][partition.topic] += partition.bytes_out
    for name, by_topic in counted.items():
        yield Metric(
            f"kafka_server_BrokerTopicMetrics_{name}_total",
            "counter",
            f"{name.removesuffix('PerSec')} of the topics that are here now.",
            [({"topic": topic}, count) for topic, count in sorted(by_topic.items())],
        )


def _partitions(broker: Broker) -> Iterator[Metric]:
    hosted = sorted(broker.partitions, key=lambda each: (each.topic, each.index))
    served = [(each, log) for each in hosted if (log := each.served_log) is not None and log.failure is None]
    labels = {id(each): {"topic": each.topic, "partition": str(each.index)} for each in hosted}
    for name, values in (
        ("Size", [(labels[id(each)], log.size_bytes) for each, log in served]),
        ("LogStartOffset", [(labels[id(each)], log.log_start_offset) for each, log in served]),
        ("LogEndOffset", [(labels[id(each)], log.log_end_offset) for each, log in served]),
        ("NumLogSegments", [(labels[id(each)], len(log.segments)) for each, log in served]),
    ):
        yield Metric(f"kafka_log_Log_{name}", "gauge", f"{name} of each log.", [(k, float(v)) for k, v in values])
    yield _gauge("kafka_server_ReplicaManager_PartitionCount", "Replicas on this broker.", len(hosted))
    leaders = sum(each.leader is not None for each in hosted)
    yield _gauge("kafka_server_ReplicaManager_LeaderCount", "Partitions led by this broker.", leaders)
    offline = sum(each.error == ErrorCode.KAFKA_STORAGE_ERROR for each in hosted)
    yield _gauge("kafka_server_ReplicaManager_OfflineReplicaCount", "Replicas whose log failed.", offline)
    lacking = sum(each.leader is not None and len(each.leader.isr) < len(each.leader.replicas) for each in hosted)
    yield _gauge("kafka_server_ReplicaManager_UnderReplicatedPartitions", "Led, with replicas not in sync.", lacking)


def _cluster(broker: Broker) -> Iterator[Metric]:
    image = broker.image
    partitions = [partition for topic in image.topics.values() for partition in topic.partitions]
    yield _gauge("kafka_controller_KafkaController_GlobalTopicCount", "Topics of the cluster.", len(image.topics))
    yield _gauge("kafka_controller_KafkaController_GlobalPartitionCount", "Partitions of the cluster.", len(partitions))
    leaderless = sum(partition.leader < 0 for partition in partitions)
    yield _gauge("kafka_controller_KafkaController_OfflinePartitionsCount", "Partitions without leader.", leaderless)
    active = len(list(image.live_brokers()))
    yield _gauge("kafka_controller_KafkaController_ActiveBrokerCount", "Brokers that clients may use.", active)


def _cleaner(broker: Broker) -> Iterator[Metric]:
    """Nothing before there was something to compact."""
    cleaner = broker.background.cleaner
    if cleaner is None:
        return
    manager, thread = "kafka_log_LogCleanerManager_", "kafka_log_LogCleaner_"
    done = cleaner.last_pass
    yield _gauge(f"{manager}max_dirty_percent", "Of the dirtiest log, lately.", int(100 * cleaner.max_dirty_ratio))
    since_ms = broker.clock.monotonic_ms() - cleaner.last_run_ms
    yield _gauge(f"{manager}time_since_last_run_ms", "Since something to compact was looked for.", since_ms)
    uncleanable = Counter({directory.path: 0 for directory in broker.hosting.directories})
    for partition in broker.partitions:
        log, directory = partition.served_log, partition.directory
        if log is not None and directory is not None and log.cleaner.why_uncleanable is not None:
            uncleanable[directory.path] += 1
    yield Metric(
        f"{manager}uncleanable_partitions_count",
        "gauge",
        "Logs that the cleaner met trouble in.",
        [({"logDirectory": path}, count) for path, count in sorted(uncleanable.items())],
    )
    yield _gauge(f"{thread}max_clean_time_secs", "How long the last pass took.", done.took_ms // 1000)
    recopied = 100 * done.bytes_written // max(done.bytes_read, 1)
    yield _gauge(f"{thread}cleaner_recopy_percent", "What the last pass left of what it read.", recopied)
    used = int(100 * done.buffer_utilization)
    yield _gauge(f"{thread}max_buffer_utilization_percent", "Of the dedupe buffer, in the last pass.", used)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return Metric(name, "gauge", meaning, [(NONE, value)])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
