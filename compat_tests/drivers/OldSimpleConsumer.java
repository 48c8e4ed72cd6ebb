import java.util.HashMap;
import java.util.Map;
import kafka.api.FetchRequestBuilder;
import kafka.api.OffsetRequest;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.cluster.BrokerEndPoint;
import kafka.common.OffsetAndMetadata;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.PartitionMetadata;
import kafka.javaapi.TopicMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;

/**
 * Kafka 1.1's SimpleConsumer with commands as lines on standard input; the program answers each line with one line.
 *
 * Arguments: host and port. Lines: leader TOPIC PARTITION | offsets TOPIC PARTITION TIME COUNT |
 * fetch TOPIC PARTITION OFFSET | commit GROUP TOPIC PARTITION OFFSET | committed GROUP TOPIC PARTITION.
 */
public class OldSimpleConsumer {
    private static final short IN_ZOOKEEPER = 0;
    private static final String CLIENT = "simple";

    public static void main(String[] arguments) {
        SimpleConsumer consumer =
            new SimpleConsumer(arguments[0], Integer.parseInt(arguments[1]), 10_000, 1 << 20, CLIENT);
        try (java.util.Scanner lines = new java.util.Scanner(System.in)) {
            while (lines.hasNextLine()) {
                System.out.println(answer(consumer, lines.nextLine().split(" ")));
                System.out.flush();
            }
        }
        consumer.close();
    }

    private static String answer(SimpleConsumer consumer, String[] words) {
        switch (words[0]) {
            case "leader": return leader(consumer, words[1], Integer.parseInt(words[2]));
            case "offsets": return offsets(consumer, place(words, 1), Long.parseLong(words[3]), Integer.parseInt(words[4]));
            case "fetch": return fetch(consumer, place(words, 1), Long.parseLong(words[3]));
            case "commit": return commit(consumer, words[1], place(words, 2), Long.parseLong(words[4]));
            case "committed": return committed(consumer, words[1], place(words, 2));
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    private static TopicAndPartition place(String[] words, int first) {
        return new TopicAndPartition(words[first], Integer.parseInt(words[first + 1]));
    }

    private static String leader(SimpleConsumer consumer, String topic, int partition) {
        TopicMetadataRequest request = new TopicMetadataRequest(java.util.List.of(topic));
        for (TopicMetadata found : consumer.send(request).topicsMetadata())
            for (PartitionMetadata each : found.partitionsMetadata())
                if (each.partitionId() == partition) {
                    BrokerEndPoint leader = each.leader();
                    return leader.id() + " " + leader.host() + ":" + leader.port();
                }
        return "none";
    }

    private static String offsets(SimpleConsumer consumer, TopicAndPartition place, long time, int count) {
        Map<TopicAndPartition, PartitionOffsetRequestInfo> asked = new HashMap<>();
        asked.put(place, new PartitionOffsetRequestInfo(time, count));
        kafka.javaapi.OffsetRequest request =
            new kafka.javaapi.OffsetRequest(asked, OffsetRequest.CurrentVersion(), CLIENT);
        kafka.javaapi.OffsetResponse response = consumer.getOffsetsBefore(request);
        StringBuilder said = new StringBuilder().append(response.errorCode(place.topic(), place.partition()));
        for (long offset : response.offsets(place.topic(), place.partition()))
            said.append(' ').append(offset);
        return said.toString();
    }

    private static String fetch(SimpleConsumer consumer, TopicAndPartition place, long offset) {
        FetchResponse response = consumer.fetch(new FetchRequestBuilder().clientId(CLIENT).minBytes(1).maxWait(100)
            .addFetch(place.topic(), place.partition(), offset, 1 << 20).build());
        StringBuilder said = new StringBuilder().append(response.errorCode(place.topic(), place.partition()))
            .append(' ').append(response.highWatermark(place.topic(), place.partition()));
        for (MessageAndOffset found : response.messageSet(place.topic(), place.partition())) {
            byte[] value = new byte[found.message().payloadSize()];
            found.message().payload().get(value);
            if (found.offset() >= offset) // A compressed message brings what came with it.
                said.append(' ').append(found.offset()).append('=').append(new String(value));
        }
        return said.toString();
    }

    private static String commit(SimpleConsumer consumer, String group, TopicAndPartition place, long offset) {
        Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
        offsets.put(place, OffsetAndMetadata.apply(offset));
        return "" + consumer.commitOffsets(new OffsetCommitRequest(group, offsets, 0, CLIENT, IN_ZOOKEEPER))
            .errors().get(place);
    }

    private static String committed(SimpleConsumer consumer, String group, TopicAndPartition place) {
        OffsetFetchRequest request =
            new OffsetFetchRequest(group, java.util.List.of(place), IN_ZOOKEEPER, 0, CLIENT);
        kafka.common.OffsetMetadataAndError found = consumer.fetchOffsets(request).offsets().get(place);
        return found.error().code() + " " + found.offset();
    }
}
