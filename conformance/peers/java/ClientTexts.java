import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.utils.Utils;

/**
 * How Kafka's clients read texts of settings. A line on standard input is a kind and a text in base64; the answer is a
 * line of texts in base64, or `!` for an error.
 */
public final class ClientTexts {
  private ClientTexts() {}

  public static void main(String[] arguments) throws Exception {
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    for (String line; (line = lines.readLine()) != null; ) {
      String[] parts = line.split(" ", 2);
      List<String> found = new ArrayList<>();
      try {
        read(parts[0], new String(Base64.getDecoder().decode(parts[1]), StandardCharsets.UTF_8), found);
      } catch (Exception error) {
        System.out.println("!");
        continue;
      }
      found.replaceAll(each -> Base64.getEncoder().encodeToString(each.getBytes(StandardCharsets.UTF_8)) + ".");
      System.out.println(String.join(" ", found));
    }
  }

  private static void read(String kind, String text, List<String> found) throws Exception {
    switch (kind) {
      case "bootstrap":
        for (String each : new AdminClientConfig(Map.of("bootstrap.servers", text)).getList("bootstrap.servers")) {
          if (Utils.getHost(each) == null || Utils.getPort(each) > 65535) {
            throw new IllegalArgumentException(each);
          }
          found.add(Utils.getHost(each) + " " + Utils.getPort(each));
        }
        if (found.isEmpty()) {
          throw new IllegalArgumentException("no address");
        }
        break;
      case "properties":
        var properties = new Properties();
        properties.load(new ByteArrayInputStream(text.getBytes(StandardCharsets.ISO_8859_1)));
        properties.forEach((key, value) -> found.addAll(List.of((String) key, (String) value)));
        break;
      default:
        var keys = new TreeSet<String>(AdminClientConfig.configNames());
        keys.addAll(ConsumerConfig.configNames());
        keys.addAll(ProducerConfig.configNames());
        found.addAll(keys);
    }
  }
}
