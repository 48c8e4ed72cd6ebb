import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.DescribeProducersResult.PartitionProducerState;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Transactions of Kafka's Java client. Arguments: the bootstrap servers, and the prefix of the names of all topics,
 * groups and transactional ids. Prints one JSON object for each case: its name in "case", and the results.
 */
public class Transactions {
    private interface Case {
        Map<String, Object> run(String name) throws Exception;
    }

    private static Clients kafka;

    public static void main(String[] arguments) throws Exception {
        kafka = new Clients(arguments[0]);
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("copied", Transactions::copied);
        cases.put("open", Transactions::open);
        cases.put("interleaved", Transactions::interleaved);
        cases.put("fenced", Transactions::fenced);
        cases.put("offsets", Transactions::offsets);
        cases.put("administered", Transactions::administered);
        cases.put("expired", Transactions::expired);
        for (String name : cases.keySet()) {
            Map<String, Object> seen = new LinkedHashMap<>(Map.of("case", name));
            try {
                seen.putAll(cases.get(name).run(arguments[1] + "-" + name));
            } catch (Throwable failure) {
                StringWriter trace = new StringWriter();
                failure.printStackTrace(new PrintWriter(trace));
                seen.put("failed", trace.toString());
            }
            System.out.println(new ObjectMapper().writeValueAsString(seen));
        }
        kafka.admin.close(Duration.ofSeconds(5));
    }

    /** Consume, transform, produce, in small transactions; abort and repeat every third one. */
    private static Map<String, Object> copied(String name) throws Exception {
        int partitions = 2;
        int records = 240;
        String from = kafka.topic(name + "-from", partitions);
        String to = kafka.topic(name + "-to", partitions);
        try (KafkaProducer<String, String> producer = kafka.plainProducer()) {
            for (int number = 0; number < records; number++) {
                producer.send(new ProducerRecord<>(from, number % partitions, null, "" + number));
            }
        }
        int commits = 0;
        int aborts = 0;
        try (KafkaProducer<String, String> producer = kafka.producer(name);
                KafkaConsumer<String, String> consumer =
                        kafka.consumer(Clients.COMMITTED, "group.id=" + name, "max.poll.records=20")) {
            producer.initTransactions();
            consumer.subscribe(List.of(from));
            for (int copied = 0; copied < records; ) {
                ConsumerRecords<String, String> polled = consumer.poll(Duration.ofMillis(200));
                if (polled.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                for (ConsumerRecord<String, String> record : polled) {
                    producer.send(new ProducerRecord<>(to, record.partition(), null, "copy of " + record.value()));
                    next.put(new TopicPartition(from, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                if ((commits + aborts) % 3 == 2) {
                    producer.flush();
                    producer.abortTransaction();
                    aborts++;
                    consumer.committed(consumer.assignment()).forEach((partition, committed) ->
                            consumer.seek(partition, committed == null ? 0 : committed.offset()));
                } else {
                    producer.commitTransaction();
                    commits++;
                    copied += polled.count();
                }
            }
        }
        kafka.ended(name);
        return Map.of(
                "aborts", aborts,
                "committed", kafka.values(to, Clients.COMMITTED),
                "written", kafka.values(to, Clients.UNCOMMITTED).values().stream().mapToInt(List::size).sum(),
                "offsets", kafka.groupOffsets(name));
    }

    /** The records that consumers read of an open transaction, then of an aborted, then of a committed one. */
    private static Map<String, Object> open(String name) throws Exception {
        String topic = kafka.topic(name, 1);
        try (KafkaProducer<String, String> producer = kafka.producer(name)) {
            producer.initTransactions();
            producer.beginTransaction();
            kafka.send(producer, topic, "aborted");
            List<Object> open = kafka.seen(topic);
            producer.abortTransaction();
            kafka.ended(name);
            List<Object> aborted = kafka.seen(topic);
            producer.beginTransaction();
            kafka.send(producer, topic, "committed");
            producer.commitTransaction();
            kafka.ended(name);
            return Map.of("open", open, "aborted", aborted, "committed", kafka.seen(topic));
        }
    }

    /** The oldest open transaction holds back a later one that is committed, and plain records. */
    private static Map<String, Object> interleaved(String name) throws Exception {
        String topic = kafka.topic(name, 1);
        try (KafkaProducer<String, String> early = kafka.producer(name + "-early");
                KafkaProducer<String, String> late = kafka.producer(name + "-late");
                KafkaProducer<String, String> plain = kafka.plainProducer()) {
            early.initTransactions();
            late.initTransactions();
            kafka.send(plain, topic, "first");
            early.beginTransaction();
            kafka.send(early, topic, "early");
            late.beginTransaction();
            kafka.send(late, topic, "late");
            kafka.send(plain, topic, "plain");
            late.commitTransaction();
            kafka.ended(name + "-late");
            List<Object> held = kafka.seen(topic);
            early.abortTransaction();
            kafka.ended(name + "-early");
            return Map.of("held", held, "free", kafka.seen(topic));
        }
    }

    /** A second producer of the same transactional id. */
    private static Map<String, Object> fenced(String name) throws Exception {
        String topic = kafka.topic(name, 1);
        try (KafkaProducer<String, String> zombie = kafka.producer(name);
                KafkaProducer<String, String> successor = kafka.producer(name)) {
            zombie.initTransactions();
            zombie.beginTransaction();
            kafka.send(zombie, topic, "before");
            successor.initTransactions();
            successor.beginTransaction();
            kafka.send(successor, topic, "successor");
            String sending = kafka.error(() -> kafka.send(zombie, topic, "after"));
            String committing = kafka.error(zombie::commitTransaction);
            String aborting = kafka.error(zombie::abortTransaction);
            successor.commitTransaction();
            kafka.ended(name);
            return Map.of(
                    "sending", sending, "committing", committing, "aborting", aborting, "values", kafka.seen(topic));
        }
    }

    /** Offsets of a transaction: pending, committed, aborted, and refused because of an unknown member id. */
    private static Map<String, Object> offsets(String name) throws Exception {
        TopicPartition partition = new TopicPartition(kafka.topic(name, 1), 0);
        ConsumerGroupMetadata nobody = new ConsumerGroupMetadata(name, 7, "nobody", Optional.empty());
        List<Object> seen = new ArrayList<>();
        try (KafkaProducer<String, String> producer = kafka.producer(name)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(3, "three")), new ConsumerGroupMetadata(name));
            seen.add(kafka.groupOffsets(name));
            producer.commitTransaction();
            kafka.ended(name);
            seen.add(kafka.groupOffsets(name));
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(5)), new ConsumerGroupMetadata(name));
            producer.abortTransaction();
            kafka.ended(name);
            seen.add(kafka.groupOffsets(name));
            producer.beginTransaction();
            String stranger = kafka.error(() ->
                    producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(7)), nobody));
            producer.abortTransaction();
            kafka.ended(name);
            seen.add(kafka.groupOffsets(name));
            return Map.of("seen", seen, "stranger", stranger);
        }
    }

    /** An open transaction as the admin client lists and describes it, and its producer fenced by the admin client. */
    private static Map<String, Object> administered(String name) throws Exception {
        TopicPartition partition = new TopicPartition(kafka.topic(name, 1), 0);
        try (KafkaProducer<String, String> producer = kafka.producer(name)) {
            producer.initTransactions();
            producer.beginTransaction();
            kafka.send(producer, partition.topic(), "lost");
            TransactionDescription described = kafka.described(name);
            PartitionProducerState producers =
                    kafka.admin.describeProducers(List.of(partition)).partitionResult(partition).get();
            ProducerState active = producers.activeProducers().get(0);
            List<String> listed = new ArrayList<>();
            for (TransactionListing listing : kafka.admin.listTransactions().all().get()) {
                if (listing.transactionalId().equals(name)) {
                    listed.add(listing.state() + " " + (listing.producerId() == active.producerId()));
                }
            }
            kafka.admin.fenceProducers(List.of(name)).all().get();
            kafka.ended(name);
            return Map.of(
                    "listed", listed,
                    "state", described.state().toString(),
                    "timeout", described.transactionTimeoutMs(),
                    "partitions", described.topicPartitions().toString(),
                    "producer", described.producerId() == active.producerId(),
                    "first offset", active.currentTransactionStartOffset().orElse(-1),
                    "committing", kafka.error(producer::commitTransaction),
                    "values", kafka.seen(partition.topic()));
        }
    }

    /** A transaction that stays open longer than its timeout, and a producer with a timeout above the maximum. */
    private static Map<String, Object> expired(String name) throws Exception {
        String topic = kafka.topic(name, 1);
        try (KafkaProducer<String, String> slow = kafka.producer(name, "transaction.timeout.ms=500")) {
            slow.initTransactions();
            slow.beginTransaction();
            kafka.send(slow, topic, "abandoned");
            kafka.ended(name);
            List<Object> abandoned = kafka.seen(topic);
            String committing = kafka.error(slow::commitTransaction);
            String excessive;
            try (KafkaProducer<String, String> next = kafka.producer(name, "transaction.timeout.ms=3600000")) {
                excessive = kafka.error(next::initTransactions);
            }
            try (KafkaProducer<String, String> next = kafka.producer(name)) {
                next.initTransactions();
                next.beginTransaction();
                kafka.send(next, topic, "next");
                next.commitTransaction();
            }
            kafka.ended(name);
            return Map.of(
                    "abandoned", abandoned,
                    "committing", committing,
                    "excessive", excessive,
                    "values", kafka.seen(topic));
        }
    }
}
