import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads lines "class version hex". Kafka's own class decodes the bytes and encodes them again. The answer to each line
 * is "ok JSON HEX" with the fields and the new bytes, or "error ...".
 */
public class Converse {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                out.println(answer(words[0], Short.parseShort(words[1]), HexFormat.of().parseHex(words[2])));
            } catch (Throwable e) {
                Throwable cause = e.getCause() == null ? e : e.getCause();
                out.println("error " + cause.toString().replace('\n', ' '));
            }
        }
        out.flush();
    }

    static String answer(String name, short version, byte[] bytes) throws Exception {
        Class<?> type = Class.forName(name);
        Message message = (Message) type.getConstructor().newInstance();
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            return "error " + buffer.remaining() + " bytes left over";
        }
        JsonNode json = (JsonNode) Class.forName(name + "JsonConverter")
            .getMethod("write", type, short.class, boolean.class)
            .invoke(null, message, version, false);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer again = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(again), cache, version);
        return "ok " + json.toString() + " " + HexFormat.of().formatHex(again.array());
    }
}
