import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Many consumers of Kafka's own client in one process, since a Java that starts costs more than a rebalance.
 *
 * <p>Arguments: properties of all consumers, as key=value. Commands on standard input: {@code join NAME GROUP TOPIC
 * ASSIGNOR} and {@code leave NAME}. The assignor {@code consumer} stands for the consumer protocol, and the topic is a
 * regular expression for it. Lines on standard output: {@code NAME owns 0,2}, {@code NAME read VALUE},
 * {@code NAME left}, and {@code NAME failed WHY}. The end of the input ends the process.
 */
public final class Members {
  private static final Duration POLL = Duration.ofMillis(50);

  public static void main(String[] arguments) throws Exception {
    Properties common = new Properties();
    for (String argument : arguments) {
      String[] pair = argument.split("=", 2);
      common.setProperty(pair[0], pair[1]);
    }
    Map<String, Member> members = new HashMap<>();
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String[] words = line.split(" ");
      if (words[0].equals("join")) {
        Member member = new Member(common, words[1], words[2], words[3], words[4]);
        members.put(words[1], member);
        member.start();
      } else {
        members.remove(words[1]).isLeaving = true;
      }
    }
    System.exit(0);
  }

  private static synchronized void say(String line) {
    System.out.println(line);
    System.out.flush();
  }

  private static final class Member extends Thread {
    volatile boolean isLeaving = false;
    private final Properties settings = new Properties();
    private final String name;
    private final String topic;
    private final boolean isOfConsumerProtocol;

    Member(Properties common, String name, String group, String topic, String assignor) {
      this.name = name;
      this.topic = topic;
      settings.putAll(common);
      settings.setProperty("group.id", group);
      isOfConsumerProtocol = assignor.equals("consumer");
      if (isOfConsumerProtocol) {
        settings.setProperty("group.protocol", "consumer");
        settings.remove("session.timeout.ms");
        settings.remove("heartbeat.interval.ms");
      } else {
        settings.setProperty("partition.assignment.strategy", assignor);
      }
    }

    @Override
    public void run() {
      try (KafkaConsumer<String, String> consumer =
          new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
        if (isOfConsumerProtocol) {
          consumer.subscribe(new SubscriptionPattern(topic));
        } else {
          consumer.subscribe(List.of(topic));
        }
        Set<TopicPartition> owned = Set.of();
        while (!isLeaving) {
          ConsumerRecords<String, String> records = consumer.poll(POLL);
          if (!owned.equals(consumer.assignment())) {
            owned = new HashSet<>(consumer.assignment());
            say(name + " owns " + owned.stream().map(each -> "" + each.partition()).collect(Collectors.joining(",")));
          }
          for (ConsumerRecord<String, String> record : records) {
            say(name + " read " + record.value());
          }
          if (!records.isEmpty()) {
            commit(consumer);
          }
        }
      } catch (RuntimeException failure) {
        say(name + " failed " + failure);
        return;
      }
      say(name + " left");
    }

    /** Commits what was read; a rebalance may have overtaken it. */
    private static void commit(KafkaConsumer<String, String> consumer) {
      try {
        consumer.commitSync();
      } catch (CommitFailedException | RebalanceInProgressException overtaken) {
        // These records are read again.
      }
    }
  }
}
