import java.util.Map;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * Kafka 1.1's high-level consumer: prints the value of every record, and leaves its group on SIGTERM.
 *
 * Arguments: the topic, then the consumer's configuration as name=value.
 */
public class OldGroupMember {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        for (int index = 1; index < arguments.length; index++) {
            String[] setting = arguments[index].split("=", 2);
            properties.put(setting[0], setting[1]);
        }
        ConsumerConnector consumer = Consumer.createJavaConsumerConnector(new ConsumerConfig(properties));
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        String topic = arguments[0];
        for (MessageAndMetadata<byte[], byte[]> record :
                consumer.createMessageStreams(Map.of(topic, 1)).get(topic).get(0)) {
            System.out.println(new String(record.message()));
            System.out.flush();
        }
    }
}
