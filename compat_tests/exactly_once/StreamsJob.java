import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * Counts words and joins two streams within ten seconds, exactly once. Arguments: the application's id, then topics
 * (lines, counts, left, right, joined), then configuration as name=value. Ends in order on SIGTERM.
 */
public class StreamsJob {
    public static void main(String[] arguments) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(arguments[1]);
        lines.flatMapValues(line -> List.of(line.split(" ")))
                .groupBy((key, word) -> word)
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(Object::toString)
                .to(arguments[2]);
        KStream<String, String> left = builder.stream(arguments[3]);
        KStream<String, String> right = builder.stream(arguments[4]);
        left.join(
                        right,
                        (one, other) -> one + "+" + other,
                        JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofSeconds(10)))
                .to(arguments[5]);

        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[0]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        for (int index = 6; index < arguments.length; index++) {
            String[] setting = arguments[index].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println(now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }
}
