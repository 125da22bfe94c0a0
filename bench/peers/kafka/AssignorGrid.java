import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberSubscription;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;

/**
 * Times the assignors of Kafka's group coordinator in a warm JVM on the groups of its own published benchmark.
 * Arguments: a file of cells, seconds of warming up, seconds of measuring; a cell is a line of
 * assignor, members, partitions of a member, topics, buckets of subscriptions, and 1 if the last member joins.
 * Prints a line for each cell: the mean ms of an assignment, and how often it ran. The time is the thread's CPU, as the
 * machine may be busy; the threads that collect garbage are not in it.
 */
public class AssignorGrid implements GroupSpec, SubscribedTopicDescriber {
    private static final int LEAST_RUNS = 3;
    private static final Map<Uuid, Set<Integer>> NOTHING = Collections.unmodifiableMap(new HashMap<>());

    private final Map<String, MemberSubscription> subscriptions = new LinkedHashMap<>();
    private final Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
    private final SubscriptionType type;
    private final int partitionsOfTopic;
    private Map<String, MemberAssignment> present = Map.of();

    private AssignorGrid(int members, int ratio, int topics, int buckets) {
        type = buckets == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        partitionsOfTopic = members * ratio / topics;
        int topicsOfBucket = (topics + buckets - 1) / buckets;
        int membersOfBucket = (members + buckets - 1) / buckets;
        Map<Integer, Set<Uuid>> byBucket = new HashMap<>();
        for (int topic = 0; topic < topics; topic++) {
            byBucket.computeIfAbsent(topic / topicsOfBucket, bucket -> new HashSet<>()).add(Uuid.randomUuid());
        }
        for (int member = 0; member < members; member++) {
            Set<Uuid> subscribed = byBucket.get(member / membersOfBucket);
            subscriptions.put("member" + member, new MemberSubscription() {
                public Optional<String> rackId() {
                    return Optional.empty();
                }

                public Optional<String> instanceId() {
                    return Optional.empty();
                }

                public Set<Uuid> subscribedTopicIds() {
                    return subscribed;
                }
            });
        }
    }

    /** Lets all members but the last have what an assignment without it gives them. */
    private void joinLast(PartitionAssignor assignor) {
        String last = "member" + (subscriptions.size() - 1);
        MemberSubscription subscription = subscriptions.remove(last);
        Map<String, MemberAssignment> found = new HashMap<>();
        assignor.assign(this, this).members().forEach((member, each) -> {
            Map<Uuid, Set<Integer>> partitions = Collections.unmodifiableMap(each.partitions());
            found.put(member, () -> partitions);
            partitions.forEach((topic, numbers) -> {
                Map<Integer, String> ofTopic = owners.computeIfAbsent(topic, id -> new HashMap<>());
                numbers.forEach(number -> ofTopic.put(number, member));
            });
        });
        subscriptions.put(last, subscription);
        present = found;
    }

    public static void main(String[] arguments) throws Exception {
        double warmUp = Double.parseDouble(arguments[1]);
        double measured = Double.parseDouble(arguments[2]);
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] fields = line.split("\t");
            PartitionAssignor assignor = fields[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
            AssignorGrid group = new AssignorGrid(Integer.parseInt(fields[1]), Integer.parseInt(fields[2]),
                Integer.parseInt(fields[3]), Integer.parseInt(fields[4]));
            if (fields[5].equals("1")) {
                group.joinLast(assignor);
            }
            group.run(assignor, warmUp);
            System.out.println(group.run(assignor, measured));
        }
    }

    private String run(PartitionAssignor assignor, double seconds) {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long start = threads.getCurrentThreadCpuTime();
        long runs = 0;
        GroupAssignment found = null;
        while (runs < LEAST_RUNS || threads.getCurrentThreadCpuTime() - start < seconds * 1e9) {
            found = assignor.assign(this, this);
            runs++;
        }
        if (found.members().size() != subscriptions.size()) {
            throw new IllegalStateException("members without an assignment");
        }
        return (threads.getCurrentThreadCpuTime() - start) / 1e6 / runs + "\t" + runs;
    }

    public Collection<String> memberIds() {
        return subscriptions.keySet();
    }

    public SubscriptionType subscriptionType() {
        return type;
    }

    public boolean isPartitionAssigned(Uuid topic, int partition) {
        return owners.getOrDefault(topic, Collections.emptyMap()).containsKey(partition);
    }

    public MemberSubscription memberSubscription(String member) {
        return subscriptions.get(member);
    }

    public MemberAssignment memberAssignment(String member) {
        return present.getOrDefault(member, () -> NOTHING);
    }

    public boolean isPartitionAssignable(Uuid topic, int partition) {
        return true;
    }

    public int numPartitions(Uuid topic) {
        return partitionsOfTopic;
    }

    public Set<String> racksForPartition(Uuid topic, int partition) {
        return Set.of();
    }
}
