import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;

import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.AbstractRequest;

/**
 * Reads lines "key version hex", each the body of a request. Prints for each the body, in hex, of the response that
 * Kafka's class of that request builds for UNSUPPORTED_VERSION.
 */
public class ErrorResponses {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            AbstractRequest request = parse(ApiKeys.forId(Integer.parseInt(words[0])), version, words[2]);
            Message answer = request.getErrorResponse(0, new UnsupportedVersionException("not served")).data();
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer body = ByteBuffer.allocate(answer.size(cache, version));
            answer.write(new ByteBufferAccessor(body), cache, version);
            System.out.println(HexFormat.of().formatHex(body.array()));
        }
    }

    /** Releases differ in where `parseRequest` reads from and in whether it also returns the size. */
    private static AbstractRequest parse(ApiKeys key, short version, String hex) throws Exception {
        ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        for (Method method : AbstractRequest.class.getMethods()) {
            if (method.getName().equals("parseRequest")) {
                Object bytes = method.getParameterTypes()[2] == ByteBuffer.class ? body : new ByteBufferAccessor(body);
                Object parsed = method.invoke(null, key, version, bytes);
                return parsed instanceof AbstractRequest
                    ? (AbstractRequest) parsed
                    : (AbstractRequest) parsed.getClass().getField("request").get(parsed);
            }
        }
        throw new IllegalStateException("AbstractRequest has no parseRequest");
    }
}
