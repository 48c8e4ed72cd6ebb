"""The metrics of a broker, in Prometheus' text format, under the names of Kafka's own metrics (domain_type_name).

Owns the list of metrics and the format. Metrics are computed when they are read: routes count requests, partitions
count bytes and records. Leaves the port to `network.http_port`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek_wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_broker.network.server import Server
    from odradek_broker.storage.log_cleaner import LogCleaner

Labels = Mapping[str, str]
NO_LABELS: Labels = {}
LATE_MS = 5 * 60 * 1000
"""A transaction is late if its newest record is older than the longest timeout and this (Kafka's
ProducerStateManager)."""


class Metric(NamedTuple):
    """A metric with its values by labels."""

    name: str
    kind: str
    help: str
    values: list[tuple[Labels, float]]


def render(metrics: Iterable[Metric]) -> str:
    """Return the metrics in Prometheus' text format, version 0.0.4."""
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {metric.help}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for labels, value in metric.values:
            shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{{{shown}}} {value:.17g}" if shown else f"{metric.name} {value:.17g}")
    return "\n".join([*lines, ""])


def collect(broker: Broker, server: Server, cleaner: LogCleaner | None, loop_lag_s: float) -> Iterator[Metric]:
    """Return every metric of a broker, with the log cleaner's if there is one."""
    yield from _requests(server)
    yield from _topics(broker)
    yield from _partitions(broker)
    yield from _cluster(broker)
    yield from _open_transactions(broker)
    yield from _coordinated_transactions(broker)
    if cleaner is not None:
        yield from _cleaner(broker, cleaner)
    yield _gauge("kafka_server_socket_server_metrics_connection_count", "Open connections.", len(server.connections))
    yield _gauge("kafka_network_SocketServer_MemoryPoolUsed", "Bytes held for clients.", server.buffers.budget.used)
    yield _gauge("kafka_server_DelayedOperationPurgatory_PurgatorySize", "Requests that wait.", len(broker.purgatory))
    yield _gauge(
        "kafka_server_FetchSessionCache_NumIncrementalFetchSessions", "Fetch sessions.", len(broker.fetch_sessions)
    )
    yield _gauge("odradek_event_loop_lag_seconds", "Delay of the event loop at the last check.", loop_lag_s)


def _requests(server: Server) -> Iterator[Metric]:
    counted: Counter[tuple[str, int]] = Counter()
    for routes in server.routes:
        for route in routes.compiled.values():
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
            f"{name.removesuffix('PerSec')} of the topics with a replica on this broker.",
            [({"topic": topic}, count) for topic, count in sorted(by_topic.items())],
        )


def _partitions(broker: Broker) -> Iterator[Metric]:
    hosted = sorted(broker.partitions, key=lambda each: (each.topic, each.index))
    served = [(each, log) for each in hosted if (log := each.served_log) is not None and log.offline_cause is None]
    labels = {id(each): {"topic": each.topic, "partition": str(each.index)} for each in hosted}
    for name, values in (
        ("Size", [(labels[id(each)], log.size_bytes) for each, log in served]),
        ("LogStartOffset", [(labels[id(each)], log.log_start_offset) for each, log in served]),
        ("LogEndOffset", [(labels[id(each)], log.log_end_offset) for each, log in served]),
        ("NumLogSegments", [(labels[id(each)], len(log.segments)) for each, log in served]),
    ):
        yield Metric(f"kafka_log_Log_{name}", "gauge", f"{name} of each log.", [(k, float(v)) for k, v in values])
    yield Metric(
        "kafka_cluster_Partition_LastStableOffsetLag",
        "gauge",
        "Offsets between the last stable offset and the high watermark.",
        [(labels[id(each)], each.high_watermark - each.last_stable_offset) for each, _ in served],
    )
    yield _gauge("kafka_server_ReplicaManager_PartitionCount", "Replicas on this broker.", len(hosted))
    leaders = sum(each.leader is not None for each in hosted)
    yield _gauge("kafka_server_ReplicaManager_LeaderCount", "Partitions led by this broker.", leaders)
    offline = sum(each.error == ErrorCode.KAFKA_STORAGE_ERROR for each in hosted)
    yield _gauge("kafka_server_ReplicaManager_OfflineReplicaCount", "Replicas whose log failed.", offline)
    lacking = sum(each.leader is not None and len(each.leader.isr) < len(each.leader.replicas) for each in hosted)
    yield _gauge(
        "kafka_server_ReplicaManager_UnderReplicatedPartitions", "Led partitions with replicas not in sync.", lacking
    )


def _cluster(broker: Broker) -> Iterator[Metric]:
    image = broker.image
    partitions = [partition for topic in image.topics.values() for partition in topic.partitions]
    yield _gauge("kafka_controller_KafkaController_GlobalTopicCount", "Topics of the cluster.", len(image.topics))
    yield _gauge("kafka_controller_KafkaController_GlobalPartitionCount", "Partitions of the cluster.", len(partitions))
    leaderless = sum(partition.leader < 0 for partition in partitions)
    yield _gauge("kafka_controller_KafkaController_OfflinePartitionsCount", "Partitions without leader.", leaderless)
    active = len(list(image.live_brokers()))
    yield _gauge("kafka_controller_KafkaController_ActiveBrokerCount", "Brokers that clients may use.", active)


def _open_transactions(broker: Broker) -> Iterator[Metric]:
    """Return the metrics of open transactions in the logs of this broker, whichever broker coordinates them."""
    led = [each for each in broker.partitions if each.leader is not None]
    logs = [log for each in led if (log := each.served_log) is not None and log.offline_cause is None]
    begun = [log for log in logs if log.producers.transactions.first_ongoing_offset is not None]
    yield _gauge("odradek_partitions_with_open_transactions", "Led partitions with an open transaction.", len(begun))
    limit_ms = broker.config.integer("transaction.max.timeout.ms") + LATE_MS
    before_ms = broker.clock.wall_ms() - limit_ms
    late = sum(
        0 < entry.last_timestamp < before_ms
        for log in begun
        for entry in log.producers
        if entry.current_txn_first_offset == log.producers.transactions.first_ongoing_offset
    )
    yield _gauge(
        "kafka_server_ReplicaManager_PartitionsWithLateTransactionsCount",
        "Led partitions with a transaction that its coordinator should have ended.",
        late,
    )
    producers = sum(len(log.producers) for each in broker.partitions if (log := each.served_log) is not None)
    yield _gauge("kafka_server_ReplicaManager_ProducerIdCount", "Producers that the logs remember.", producers)


def _coordinated_transactions(broker: Broker) -> Iterator[Metric]:
    """Return the metrics of the transaction coordinator; all zero before a client has used a transactional id."""
    from odradek_broker.transactions.core.transaction_metadata import TransactionOutcome, TransactionState

    coordinator, manager = broker.transactions_in_use
    shards = [] if coordinator is None else list(coordinator.shards)
    transactions = [each for shard in shards for each in shard.transactions.values()]
    states = Counter(each.state for each in transactions)
    yield Metric(
        "odradek_transactions",
        "gauge",
        "Transactional ids that are coordinated here, by the state of their transactions.",
        [({"state": state.label}, states[state]) for state in TransactionState],
    )
    now_ms = broker.clock.wall_ms()
    ages_ms = [now_ms - each.start_ms for each in transactions if each.state is TransactionState.ONGOING]
    oldest_s = max(ages_ms, default=0) / 1000
    yield _gauge("odradek_transactions_oldest_open_seconds", "Age of the oldest open transaction.", oldest_s)
    yield Metric(
        "odradek_transactions_ended_total",
        "counter",
        "Transactions that this coordinator has decided to commit or abort.",
        [
            ({"outcome": each.value}, 0 if coordinator is None else coordinator.outcome_counts[each])
            for each in TransactionOutcome
        ],
    )
    yield _gauge(
        "odradek_transaction_markers_left",
        "Transaction markers of decided transactions that are not yet written.",
        sum(shard.markers_left for shard in shards),
    )
    yield _gauge(
        "kafka_coordinator_transaction_TransactionMarkerChannelManager_UnknownDestinationQueueSize",
        "Transaction markers that wait for a leader or for a retry.",
        0 if coordinator is None else coordinator.markers_to_retry,
    )
    yield Metric(
        "kafka_server_AddPartitionsToTxnManager_VerificationFailureRate_total",
        "counter",
        "Partitions in which a transaction could not begin, because the coordinator did not verify it.",
        [(NO_LABELS, 0 if manager is None else manager.verification_failures)],
    )


def _cleaner(broker: Broker, cleaner: LogCleaner) -> Iterator[Metric]:
    manager, thread = "kafka_log_LogCleanerManager_", "kafka_log_LogCleaner_"
    done = cleaner.last_pass
    yield _gauge(
        f"{manager}max_dirty_percent",
        "Dirty ratio of the dirtiest log at the last check, in percent.",
        int(100 * cleaner.max_dirty_ratio),
    )
    since_ms = broker.clock.monotonic_ms() - cleaner.last_run_ms
    yield _gauge(
        f"{manager}time_since_last_run_ms", "Milliseconds since the cleaner last looked for a dirty log.", since_ms
    )
    uncleanable = Counter({directory.path: 0 for directory in broker.log_directories.all})
    for partition in broker.partitions:
        log, directory = partition.served_log, partition.directory
        if log is not None and directory is not None and log.cleaner.uncleanable_error is not None:
            uncleanable[directory.path] += 1
    yield Metric(
        f"{manager}uncleanable_partitions_count",
        "gauge",
        "Logs that cannot be cleaned.",
        [({"logDirectory": path}, count) for path, count in sorted(uncleanable.items())],
    )
    yield _gauge(f"{thread}max_clean_time_secs", "Duration of the last pass in seconds.", done.took_ms // 1000)
    recopied = 100 * done.bytes_written // max(done.bytes_read, 1)
    yield _gauge(f"{thread}cleaner_recopy_percent", "Bytes written per 100 bytes read in the last pass.", recopied)
    used = int(100 * done.buffer_utilization)
    yield _gauge(
        f"{thread}max_buffer_utilization_percent", "Use of the dedupe buffer in the last pass, in percent.", used
    )
    totals = cleaner.totals
    for unit, read, written in (
        ("bytes", totals.bytes_read, totals.bytes_written),
        ("records", totals.records_read, totals.records_written),
    ):
        yield Metric(
            f"odradek_log_cleaner_{unit}_total",
            "counter",
            f"{unit.capitalize()} that cleaner passes read and wrote.",
            [({"what": "read"}, read), ({"what": "written"}, written)],
        )
    passes = [(NO_LABELS, float(totals.passes))]
    yield Metric("odradek_log_cleaner_passes_total", "counter", "Completed cleaner passes.", passes)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return Metric(name, "gauge", meaning, [(NO_LABELS, value)])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
