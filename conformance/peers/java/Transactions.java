import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional producers of Kafka's own client, as many as are wanted in one process.
 *
 * <p>Arguments: properties of all producers, as key=value. Commands on standard input: {@code init NAME
 * TRANSACTIONAL_ID}, {@code begin NAME}, {@code write NAME TOPIC PARTITION VALUE}, {@code offset NAME TOPIC GROUP
 * OFFSET} (of partition 0), {@code flush NAME}, {@code commit NAME}, {@code abort NAME}, {@code close NAME}. Each is
 * answered by a line on standard output: {@code done}, or the error. The end of the input ends the process.
 */
@SuppressWarnings("removal") // metadata of a group that has only a name
public final class Transactions {
  private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();

  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    for (String argument : arguments) {
      String[] pair = argument.split("=", 2);
      settings.setProperty(pair[0], pair[1]);
    }
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String answer = "done";
      try {
        obey(settings, line.split(" "));
      } catch (RuntimeException failure) {
        answer = failure.toString().replace('\n', ' ');
      }
      System.out.println(answer);
      System.out.flush();
    }
    System.exit(0);
  }

  private static void obey(Properties settings, String[] words) {
    if (words[0].equals("init")) {
      Properties own = new Properties();
      own.putAll(settings);
      own.setProperty("transactional.id", words[2]);
      PRODUCERS.put(words[1], new KafkaProducer<>(own, new StringSerializer(), new StringSerializer()));
    }
    KafkaProducer<String, String> producer = PRODUCERS.get(words[1]);
    switch (words[0]) {
      case "init" -> producer.initTransactions();
      case "begin" -> producer.beginTransaction();
      case "write" -> producer.send(new ProducerRecord<>(words[2], Integer.valueOf(words[3]), null, words[4]));
      case "offset" -> producer.sendOffsetsToTransaction(
          Map.of(new TopicPartition(words[2], 0), new OffsetAndMetadata(Long.parseLong(words[4]))),
          new ConsumerGroupMetadata(words[3]));
      case "flush" -> producer.flush();
      case "commit" -> producer.commitTransaction();
      case "abort" -> producer.abortTransaction();
      case "close" -> producer.close();
      default -> throw new IllegalArgumentException(words[0]);
    }
  }
}
