import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.Stores;

/**
 * An instance of Kafka Streams that copies lines, and counts their words in a store in memory.
 *
 * <p>Arguments: the topics of lines, copies and counts, and properties of Streams as key=value. A word's n-th
 * occurrence writes "word n" to the topic of counts. SIGTERM closes it; an error ends it with status 1.
 */
public final class WordCount {
  public static void main(String[] arguments) {
    Properties settings = new Properties();
    settings.setProperty("default.key.serde", Serdes.StringSerde.class.getName());
    settings.setProperty("default.value.serde", Serdes.StringSerde.class.getName());
    for (String argument : List.of(arguments).subList(3, arguments.length)) {
      String[] pair = argument.split("=", 2);
      settings.setProperty(pair[0], pair[1]);
    }
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, String> lines = builder.stream(arguments[0]);
    lines.to(arguments[1]);
    lines
        .flatMapValues(line -> List.of(line.split(" ")))
        .groupBy((key, word) -> word)
        .count(Materialized.as(Stores.inMemoryKeyValueStore("words")))
        .toStream()
        .map((word, count) -> new KeyValue<>(word, word + " " + count))
        .to(arguments[2]);
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    streams.setStateListener(
        (now, before) -> {
          if (now == KafkaStreams.State.ERROR) {
            Runtime.getRuntime().halt(1);
          }
        });
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
  }
}
