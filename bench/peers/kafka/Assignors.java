import java.io.BufferedReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberSubscription;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;

/** Runs Kafka's assignors on the cases of a file; `kafka_assignors.py` writes it and reads what this prints. */
public class Assignors {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private final String strategy;
    private final int repeat;
    private final boolean prints;
    private final List<PartitionInfo> partitions = new ArrayList<>();
    private final Map<String, Node> nodes = new HashMap<>();
    private final List<String[]> members = new ArrayList<>();

    private Assignors(String[] fields) {
        strategy = fields[1];
        repeat = Integer.parseInt(fields[2]);
        prints = fields[3].equals("1");
    }

    public static void main(String[] arguments) throws Exception {
        try (BufferedReader reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            Assignors current = null;
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                String[] fields = line.split("\t", -1);
                switch (fields[0]) {
                    case "case": current = new Assignors(fields); break;
                    case "topic": current.addTopic(fields); break;
                    case "member": current.members.add(fields); break;
                    default: current.run();
                }
            }
        }
        OUT.flush();
    }

    private void addTopic(String[] fields) {
        int count = Integer.parseInt(fields[2]);
        String[] racks = fields[3].isEmpty() ? null : fields[3].split(";", -1);
        for (int i = 0; i < count; i++) {
            Node[] replicas = racks == null || racks[i].isEmpty() ? new Node[0] : Arrays.stream(racks[i].split("\\+"))
                .map(rack -> nodes.computeIfAbsent(rack, r -> new Node(nodes.size(), "", 0, r))).toArray(Node[]::new);
            partitions.add(new PartitionInfo(fields[1], i, Node.noNode(), replicas, replicas));
        }
    }

    private void run() throws Exception {
        if (strategy.startsWith("server-")) {
            new ServerAssignment(this).run();
            return;
        }
        Cluster cluster = new Cluster("c", nodes.values(), partitions, Collections.emptySet(), Collections.emptySet());
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (String[] fields : members) {
            subscriptions.put(fields[1], subscription(fields));
        }
        Map<String, Assignment> assignments = null;
        StringBuilder seconds = new StringBuilder("seconds");
        for (int i = 0; i < repeat; i++) {
            ConsumerPartitionAssignor assignor = assignor();
            for (Subscription each : subscriptions.values()) {
                if (each.userData() != null) {
                    each.userData().rewind();
                }
            }
            long start = System.nanoTime();
            assignments = assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
            seconds.append("\t").append((System.nanoTime() - start) / 1e9);
        }
        Map<String, List<TopicPartition>> shares = new HashMap<>();
        assignments.forEach((member, each) -> shares.put(member, each.partitions()));
        print(seconds, shares);
    }

    private void print(StringBuilder seconds, Map<String, List<TopicPartition>> shares) throws Exception {
        OUT.println(seconds);
        if (prints) {
            shares.forEach((member, each) -> OUT.println("member\t" + member + "\t" + written(each)));
        }
        String peak = Files.readAllLines(Path.of("/proc/self/status")).stream()
            .filter(line -> line.startsWith("VmHWM")).findFirst().orElse("VmHWM: 0 kB");
        OUT.println("end\t" + peak.replaceAll("\\D", ""));
    }

    private ConsumerPartitionAssignor assignor() {
        switch (strategy) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    private Subscription subscription(String[] fields) {
        List<String> topics = fields[5].isEmpty() ? List.of() : List.of(fields[5].split(","));
        List<TopicPartition> owned = new ArrayList<>();
        if (!fields[6].isEmpty()) {
            for (String topic : fields[6].split(",")) {
                int colon = topic.lastIndexOf(':');
                for (String number : topic.substring(colon + 1).split(" ")) {
                    owned.add(new TopicPartition(topic.substring(0, colon), Integer.parseInt(number)));
                }
            }
        }
        int generation = Integer.parseInt(fields[4]);
        Optional<String> rack = fields[3].equals("-") ? Optional.empty() : Optional.of(fields[3]);
        ByteBuffer userData = null;
        if (strategy.equals("sticky") && generation >= 0) {
            StickyAssignor member = new StickyAssignor();
            member.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
            userData = member.subscriptionUserData(new HashSet<>(topics));
            owned = List.of();
        }
        Subscription subscription = new Subscription(topics, userData, owned, generation, rack);
        if (!fields[2].equals("-")) {
            subscription.setGroupInstanceId(Optional.of(fields[2]));
        }
        return subscription;
    }

    private static String written(List<TopicPartition> partitions) {
        Map<String, StringBuilder> byTopic = new TreeMap<>();
        for (TopicPartition each : partitions) {
            byTopic.computeIfAbsent(each.topic(), topic -> new StringBuilder(topic + ":"))
                .append(each.partition()).append(' ');
        }
        return String.join(",", byTopic.values().stream().map(text -> text.toString().trim()).toList());
    }

    /** One case for an assignor of the group coordinator (KIP-848): topics by id, the last target as the assignment. */
    private static class ServerAssignment implements GroupSpec, SubscribedTopicDescriber {
        private final Assignors inputs;
        private final Map<String, Uuid> ids = new LinkedHashMap<>();
        private final Map<Uuid, String> names = new HashMap<>();
        private final Map<Uuid, Map<Integer, Set<String>>> racks = new HashMap<>();
        private final Map<String, MemberSubscription> subscriptions = new LinkedHashMap<>();
        private final Map<String, MemberAssignment> assignments = new HashMap<>();
        private final Set<TopicPartition> assigned = new HashSet<>();

        ServerAssignment(Assignors inputs) {
            this.inputs = inputs;
            for (PartitionInfo each : inputs.partitions) {
                Uuid id = ids.computeIfAbsent(each.topic(), topic -> new Uuid(0, ids.size() + 100));
                names.put(id, each.topic());
                Set<String> racksOfPartition = new HashSet<>();
                Arrays.stream(each.replicas()).forEach(node -> racksOfPartition.add(node.rack()));
                racks.computeIfAbsent(id, topic -> new HashMap<>()).put(each.partition(), racksOfPartition);
            }
            inputs.members.forEach(this::addMember);
        }

        private void addMember(String[] fields) {
            Subscription subscription = inputs.subscription(fields);
            Set<Uuid> topics = new HashSet<>();
            subscription.topics().stream().filter(ids::containsKey).forEach(topic -> topics.add(ids.get(topic)));
            Map<Uuid, Set<Integer>> owned = new HashMap<>();
            for (TopicPartition each : subscription.ownedPartitions()) {
                owned.computeIfAbsent(ids.get(each.topic()), id -> new HashSet<>()).add(each.partition());
                assigned.add(each);
            }
            subscriptions.put(fields[1], new MemberSubscription() {
                public Optional<String> rackId() {
                    return subscription.rackId();
                }

                public Optional<String> instanceId() {
                    return subscription.groupInstanceId();
                }

                public Set<Uuid> subscribedTopicIds() {
                    return topics;
                }
            });
            Map<Uuid, Set<Integer>> present = Collections.unmodifiableMap(owned);
            assignments.put(fields[1], () -> present);
        }

        void run() throws Exception {
            Map<String, MemberAssignment> found = null;
            StringBuilder seconds = new StringBuilder("seconds");
            for (int i = 0; i < inputs.repeat; i++) {
                PartitionAssignor assignor = inputs.strategy.equals("server-uniform")
                    ? new UniformAssignor() : new org.apache.kafka.coordinator.group.assignor.RangeAssignor();
                long start = System.nanoTime();
                found = assignor.assign(this, this).members();
                seconds.append("\t").append((System.nanoTime() - start) / 1e9);
            }
            Map<String, List<TopicPartition>> shares = new HashMap<>();
            found.forEach((member, each) -> {
                List<TopicPartition> share = shares.computeIfAbsent(member, name -> new ArrayList<>());
                each.partitions().forEach((id, numbers) ->
                    numbers.forEach(number -> share.add(new TopicPartition(names.get(id), number))));
            });
            inputs.print(seconds, shares);
        }

        public java.util.Collection<String> memberIds() {
            return subscriptions.keySet();
        }

        public SubscriptionType subscriptionType() {
            long distinct = subscriptions.values().stream().map(MemberSubscription::subscribedTopicIds).distinct().count();
            return distinct <= 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        }

        public boolean isPartitionAssigned(Uuid topic, int partition) {
            return assigned.contains(new TopicPartition(names.get(topic), partition));
        }

        public boolean isPartitionAssignable(Uuid topic, int partition) {
            return true;
        }

        public MemberSubscription memberSubscription(String member) {
            return subscriptions.get(member);
        }

        public MemberAssignment memberAssignment(String member) {
            return assignments.getOrDefault(member, Map::of);
        }

        public int numPartitions(Uuid topic) {
            return racks.containsKey(topic) ? racks.get(topic).size() : -1;
        }

        public Set<String> racksForPartition(Uuid topic, int partition) {
            return racks.get(topic).get(partition);
        }
    }
}
