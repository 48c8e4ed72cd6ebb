import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Clients of one cluster, and the results of their requests. */
class Clients {
    interface Step {
        void run() throws Exception;
    }

    static final String COMMITTED = "read_committed";
    static final String UNCOMMITTED = "read_uncommitted";
    final Admin admin;
    private final String servers;

    Clients(String servers) {
        this.servers = servers;
        this.admin = Admin.create(settings());
    }

    KafkaProducer<String, String> plainProducer() {
        return new KafkaProducer<>(settings());
    }

    private Properties settings(String... more) {
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

    KafkaProducer<String, String> producer(String transactionalId, String... more) {
        Properties settings = settings(more);
        settings.put("transactional.id", transactionalId);
        return new KafkaProducer<>(settings);
    }

    KafkaConsumer<String, String> consumer(String isolation, String... more) {
        Properties settings = settings(more);
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings);
    }

    String topic(String name, int partitions) throws Exception {
        admin.createTopics(Set.of(new NewTopic(name, partitions, (short) 1))).all().get();
        return name;
    }

    void send(KafkaProducer<String, String> producer, String topic, String value) throws Exception {
        producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
    }

    /** Return, for a topic's only partition, the last stable offset and the values up to it, and both for the end. */
    List<Object> seen(String topic) {
        List<Object> seen = new ArrayList<>();
        for (String isolation : List.of(COMMITTED, UNCOMMITTED)) {
            try (KafkaConsumer<String, String> consumer = consumer(isolation)) {
                seen.addAll(consumer.endOffsets(Set.of(new TopicPartition(topic, 0))).values());
            }
            seen.add(values(topic, isolation).get(0));
        }
        return seen;
    }

    Map<Integer, List<String>> values(String topic, String isolation) {
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

    List<String> groupOffsets(String group) throws Exception {
        List<String> offsets = new ArrayList<>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach((partition, committed) ->
                offsets.add(partition.partition() + " " + committed.offset() + " " + committed.metadata()));
        offsets.sort(null);
        return offsets;
    }

    TransactionDescription described(String transactionalId) throws Exception {
        return admin.describeTransactions(List.of(transactionalId)).description(transactionalId).get();
    }

    /** Wait until the markers of the last transaction, if there is one, are in all of its partitions. */
    void ended(String transactionalId) throws Exception {
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

    /** Run a step. Return the class name of its exception at the root, or "none". */
    String error(Step step) {
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
