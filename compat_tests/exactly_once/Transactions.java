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
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Transactions of Kafka's Java client. Arguments: the bootstrap servers, and what begins the names of all topics,
 * groups and transactional ids. Prints one JSON object for each case: its name in "case", then what was seen.
 */
public class Transactions {
    private interface Case {
        Map<String, Object> run(String name) throws Exception;
    }

    private interface Step {
        void run() throws Exception;
    }

    private static final String COMMITTED = "read_committed";
    private static final String UNCOMMITTED = "read_uncommitted";
    private static String servers;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("copied", Transactions::copied);
        cases.put("open", Transactions::open);
        cases.put("interleaved", Transactions::interleaved);
        cases.put("fenced", Transactions::fenced);
        cases.put("offsets", Transactions::offsets);
        cases.put("administered", Transactions::administered);
        cases.put("expired", Transactions::expired);
        admin = Admin.create(settings());
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
        admin.close(Duration.ofSeconds(5));
    }

    /** Consume, transform, produce, in small transactions of which every third is aborted and done again. */
    private static Map<String, Object> copied(String name) throws Exception {
        int partitions = 2;
        int records = 240;
        String from = topic(name + "-from", partitions);
        String to = topic(name + "-to", partitions);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings())) {
            for (int number = 0; number < records; number++) {
                producer.send(new ProducerRecord<>(from, number % partitions, null, "" + number));
            }
        }
        int commits = 0;
        int aborts = 0;
        try (KafkaProducer<String, String> producer = producer(name);
                KafkaConsumer<String, String> consumer =
                        consumer(COMMITTED, "group.id=" + name, "max.poll.records=20")) {
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
        ended(name);
        return Map.of(
                "aborts", aborts,
                "committed", values(to, COMMITTED),
                "written", values(to, UNCOMMITTED).values().stream().mapToInt(List::size).sum(),
                "offsets", groupOffsets(name));
    }

    /** What readers see of an open transaction, then of an aborted, then of a committed one. */
    private static Map<String, Object> open(String name) throws Exception {
        String topic = topic(name, 1);
        try (KafkaProducer<String, String> producer = producer(name)) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, topic, "aborted");
            List<Object> open = seen(topic);
            producer.abortTransaction();
            ended(name);
            List<Object> aborted = seen(topic);
            producer.beginTransaction();
            send(producer, topic, "committed");
            producer.commitTransaction();
            ended(name);
            return Map.of("open", open, "aborted", aborted, "committed", seen(topic));
        }
    }

    /** The oldest open transaction holds back a later one that is committed, and plain records. */
    private static Map<String, Object> interleaved(String name) throws Exception {
        String topic = topic(name, 1);
        try (KafkaProducer<String, String> early = producer(name + "-early");
                KafkaProducer<String, String> late = producer(name + "-late");
                KafkaProducer<String, String> plain = new KafkaProducer<>(settings())) {
            early.initTransactions();
            late.initTransactions();
            send(plain, topic, "first");
            early.beginTransaction();
            send(early, topic, "early");
            late.beginTransaction();
            send(late, topic, "late");
            send(plain, topic, "plain");
            late.commitTransaction();
            ended(name + "-late");
            List<Object> held = seen(topic);
            early.abortTransaction();
            ended(name + "-early");
            return Map.of("held", held, "free", seen(topic));
        }
    }

    /** A second producer of the same transactional id. */
    private static Map<String, Object> fenced(String name) throws Exception {
        String topic = topic(name, 1);
        try (KafkaProducer<String, String> zombie = producer(name);
                KafkaProducer<String, String> successor = producer(name)) {
            zombie.initTransactions();
            zombie.beginTransaction();
            send(zombie, topic, "before");
            successor.initTransactions();
            successor.beginTransaction();
            send(successor, topic, "successor");
            String sending = error(() -> send(zombie, topic, "after"));
            String committing = error(zombie::commitTransaction);
            String aborting = error(zombie::abortTransaction);
            successor.commitTransaction();
            ended(name);
            return Map.of(
                    "sending", sending, "committing", committing, "aborting", aborting, "values", seen(topic));
        }
    }

    /** Offsets of a transaction: pending, committed, aborted, and refused to who is no member of the group. */
    private static Map<String, Object> offsets(String name) throws Exception {
        TopicPartition partition = new TopicPartition(topic(name, 1), 0);
        ConsumerGroupMetadata nobody = new ConsumerGroupMetadata(name, 7, "nobody", Optional.empty());
        List<Object> seen = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(name)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(3, "three")), new ConsumerGroupMetadata(name));
            seen.add(groupOffsets(name));
            producer.commitTransaction();
            ended(name);
            seen.add(groupOffsets(name));
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(5)), new ConsumerGroupMetadata(name));
            producer.abortTransaction();
            ended(name);
            seen.add(groupOffsets(name));
            producer.beginTransaction();
            String stranger = error(() ->
                    producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(7)), nobody));
            producer.abortTransaction();
            ended(name);
            seen.add(groupOffsets(name));
            return Map.of("seen", seen, "stranger", stranger);
        }
    }

    /** An open transaction as the admin client lists and describes it, and its producer fenced by the admin client. */
    private static Map<String, Object> administered(String name) throws Exception {
        TopicPartition partition = new TopicPartition(topic(name, 1), 0);
        try (KafkaProducer<String, String> producer = producer(name)) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, partition.topic(), "lost");
            TransactionDescription described = described(name);
            ProducerState active =
                    admin.describeProducers(List.of(partition)).all().get().get(partition).activeProducers().get(0);
            List<String> listed = new ArrayList<>();
            for (TransactionListing listing : admin.listTransactions().all().get()) {
                if (listing.transactionalId().equals(name)) {
                    listed.add(listing.state() + " " + (listing.producerId() == active.producerId()));
                }
            }
            admin.fenceProducers(List.of(name)).all().get();
            ended(name);
            return Map.of(
                    "listed", listed,
                    "state", described.state().toString(),
                    "timeout", described.transactionTimeoutMs(),
                    "partitions", described.topicPartitions().toString(),
                    "producer", described.producerId() == active.producerId(),
                    "first offset", active.currentTransactionStartOffset().orElse(-1),
                    "committing", error(producer::commitTransaction),
                    "values", seen(partition.topic()));
        }
    }

    /** A transaction that is left open longer than its timeout, and one whose timeout is more than is allowed. */
    private static Map<String, Object> expired(String name) throws Exception {
        String topic = topic(name, 1);
        try (KafkaProducer<String, String> slow = producer(name, "transaction.timeout.ms=500")) {
            slow.initTransactions();
            slow.beginTransaction();
            send(slow, topic, "abandoned");
            ended(name);
            List<Object> abandoned = seen(topic);
            String committing = error(slow::commitTransaction);
            String excessive;
            try (KafkaProducer<String, String> next = producer(name, "transaction.timeout.ms=3600000")) {
                excessive = error(next::initTransactions);
            }
            try (KafkaProducer<String, String> next = producer(name)) {
                next.initTransactions();
                next.beginTransaction();
                send(next, topic, "next");
                next.commitTransaction();
            }
            ended(name);
            return Map.of(
                    "abandoned", abandoned, "committing", committing, "excessive", excessive, "values", seen(topic));
        }
    }

    private static Properties settings(String... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        for (String side : List.of("key", "value")) {
            settings.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        for (String setting : more) {
            String[] words = setting.split("=", 2);
            settings.put(words[0], words[1]);
        }
        return settings;
    }

    private static KafkaProducer<String, String> producer(String transactionalId, String... more) {
        Properties settings = settings(more);
        settings.put("transactional.id", transactionalId);
        return new KafkaProducer<>(settings);
    }

    private static KafkaConsumer<String, String> consumer(String isolation, String... more) {
        Properties settings = settings(more);
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings);
    }

    private static String topic(String name, int partitions) throws Exception {
        admin.createTopics(Set.of(new NewTopic(name, partitions, (short) 1))).all().get();
        return name;
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String value) throws Exception {
        producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
    }

    /** The last stable offset and what is read up to there, then the same up to the end, in a topic's only partition. */
    private static List<Object> seen(String topic) {
        List<Object> seen = new ArrayList<>();
        for (String isolation : List.of(COMMITTED, UNCOMMITTED)) {
            try (KafkaConsumer<String, String> consumer = consumer(isolation)) {
                seen.addAll(consumer.endOffsets(Set.of(new TopicPartition(topic, 0))).values());
            }
            seen.add(values(topic, isolation).get(0));
        }
        return seen;
    }

    private static Map<Integer, List<String>> values(String topic, String isolation) {
        Map<Integer, List<String>> values = new TreeMap<>();
        try (KafkaConsumer<String, String> consumer = consumer(isolation)) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(each -> partitions.add(new TopicPartition(topic, each.partition())));
            partitions.forEach(each -> values.put(each.partition(), new ArrayList<>()));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                consumer.poll(Duration.ofMillis(100))
                        .forEach(record -> values.get(record.partition()).add(record.value()));
            }
        }
        return values;
    }

    private static List<String> groupOffsets(String group) throws Exception {
        List<String> offsets = new ArrayList<>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach((partition, committed) ->
                offsets.add(partition.partition() + " " + committed.offset() + " " + committed.metadata()));
        offsets.sort(null);
        return offsets;
    }

    private static TransactionDescription described(String transactionalId) throws Exception {
        return admin.describeTransactions(List.of(transactionalId)).description(transactionalId).get();
    }

    /** Wait until the outcome of the last transaction stands in all of its partitions, or there was none. */
    private static void ended(String transactionalId) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        Set<TransactionState> ended =
                Set.of(TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT);
        while (!ended.contains(described(transactionalId).state())) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(transactionalId + " is still " + described(transactionalId));
            }
            Thread.sleep(20);
        }
    }

    /** The name of what is at the bottom of the exception. */
    private static String error(Step step) {
        try {
            step.run();
            return "none";
        } catch (Exception failure) {
            Throwable root = failure;
            while (root.getCause() != null) {
                root = root.getCause();
            }
            return root.getClass().getSimpleName();
        }
    }
}
