import java.time.Duration;
import java.util.Map;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * A group's translated offsets in a topic's mirror. Arguments, three for each group: the bootstrap servers of the
 * cluster with the mirror, the other cluster's alias there, the group. Prints "topic-partition offset" for each offset.
 */
public class TranslatedOffsets {
    public static void main(String[] arguments) throws Exception {
        for (int index = 0; index < arguments.length; index += 3) {
            Map<String, Object> client = Map.of("bootstrap.servers", arguments[index]);
            RemoteClusterUtils.translateOffsets(
                            client, arguments[index + 1], arguments[index + 2], Duration.ofSeconds(30))
                    .forEach((partition, offset) -> System.out.println(partition + " " + offset.offset()));
        }
    }
}
