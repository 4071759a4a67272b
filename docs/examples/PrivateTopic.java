import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Prints what a private topic holds: of each record its ce_id, which is the same in every copy of it, and its JSON.
 *
 * <pre>java -cp 'kafka/libs/*' PrivateTopic.java broker:9092 tacet.private.public.floors.v1 [client.properties]</pre>
 */
public final class PrivateTopic {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("isolation.level", "read_committed"); // what a worker has begun and not finished is no record
        settings.put("enable.auto.commit", "false"); // no group: this program belongs to nobody's offsets
        if (words.length > 2) {
            try (var file = new java.io.FileReader(words[2])) {
                settings.load(file); // user, password, certificates
            }
        }
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> places = consumer.partitionsFor(words[1]).stream()
                    .map(each -> new TopicPartition(each.topic(), each.partition())).collect(Collectors.toList());
            consumer.assign(places);
            consumer.seekToBeginning(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    Header id = record.headers().lastHeader("ce_id");
                    System.out.println(new String(id.value(), StandardCharsets.UTF_8) + "\t" + record.value());
                }
            }
        }
    }
}
