package org.apache.kafka.common.utils;

/** The class that Kafka 4.4 has moved, for the file connector of 4.3, which has no newer release. */
public class AppInfoParser {
    public static String getVersion() {
        return "4.3.1";
    }
}
