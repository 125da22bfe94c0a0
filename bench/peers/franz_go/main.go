// A client of the library franz-go for tests: it produces, consumes, or writes one transaction.
//
//	franz_go [-X KEY=VALUE]... produce TOPIC VALUE...
//	franz_go [-X KEY=VALUE]... consume TOPIC COUNT
//	franz_go [-X KEY=VALUE]... transact TRANSACTIONAL_ID commit|abort TOPIC VALUE...
//
// Keys are those of librdkafka. consume starts at the beginning, in the group of group.id if there is one, by
// isolation.level, and commits. Each record that was written or read is a line: PARTITION OFFSET VALUE.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const limit = 30 * time.Second

type settings map[string]string

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	keys := settings{}
	for len(arguments) > 1 && arguments[0] == "-X" {
		key, value, _ := strings.Cut(arguments[1], "=")
		keys[key] = value
		arguments = arguments[2:]
	}
	options, err := keys.options()
	if err != nil {
		return err
	}
	switch {
	case len(arguments) > 2 && arguments[0] == "produce":
		return produce(ctx, options, arguments[1], arguments[2:])
	case len(arguments) == 3 && arguments[0] == "consume":
		return consume(ctx, options, keys, arguments[1], arguments[2])
	case len(arguments) > 4 && arguments[0] == "transact":
		return transact(ctx, options, arguments[1], arguments[2], arguments[3], arguments[4:])
	}
	return errors.New("usage: franz_go [-X KEY=VALUE]... produce TOPIC VALUE... | consume TOPIC COUNT | " +
		"transact TRANSACTIONAL_ID commit|abort TOPIC VALUE...")
}

func produce(ctx context.Context, options []kgo.Opt, topic string, values []string) error {
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	return write(ctx, client, topic, values)
}

func consume(ctx context.Context, options []kgo.Opt, keys settings, topic, wanted string) error {
	count, err := strconv.Atoi(wanted)
	if err != nil {
		return err
	}
	options = append(options, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if group := keys["group.id"]; group != "" {
		options = append(options, kgo.ConsumerGroup(group), kgo.DisableAutoCommit())
	}
	if keys["isolation.level"] == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	for count > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(show)
		count -= fetches.NumRecords()
	}
	return client.CommitUncommittedOffsets(ctx)
}

func transact(ctx context.Context, options []kgo.Opt, id, end, topic string, values []string) error {
	client, err := kgo.NewClient(append(options, kgo.TransactionalID(id))...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := write(ctx, client, topic, values); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TransactionEndTry(end == "commit"))
}

func write(ctx context.Context, client *kgo.Client, topic string, values []string) error {
	for _, value := range values {
		record, err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).First()
		if err != nil {
			return err
		}
		show(record)
	}
	return nil
}

func show(record *kgo.Record) {
	fmt.Println(record.Partition, record.Offset, string(record.Value))
}

func (keys settings) options() ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(keys["bootstrap.servers"], ",")...),
		kgo.AllowAutoTopicCreation(),
		kgo.RecordDeliveryTimeout(limit / 2),
	}
	if strings.HasSuffix(keys["security.protocol"], "SSL") {
		config, err := keys.tls()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if strings.HasPrefix(keys["security.protocol"], "SASL") {
		mechanism, err := keys.mechanism()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}

func (keys settings) tls() (*tls.Config, error) {
	trusted, err := os.ReadFile(keys["ssl.ca.location"])
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if own := keys["ssl.certificate.location"]; own != "" {
		pair, err := tls.LoadX509KeyPair(own, keys["ssl.key.location"])
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (keys settings) mechanism() (sasl.Mechanism, error) {
	user, password := keys["sasl.username"], keys["sasl.password"]
	switch keys["sasl.mechanism"] {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Oauth(keys.token), nil
	}
	return nil, fmt.Errorf("there is no mechanism %q", keys["sasl.mechanism"])
}

// token requests a token by the client credentials grant.
func (keys settings) token(ctx context.Context) (oauth.Auth, error) {
	form := strings.NewReader(url.Values{"grant_type": {"client_credentials"}}.Encode())
	request, err := http.NewRequestWithContext(ctx, "POST", keys["sasl.oauthbearer.token.endpoint.url"], form)
	if err != nil {
		return oauth.Auth{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(url.QueryEscape(keys["sasl.oauthbearer.client.id"]),
		url.QueryEscape(keys["sasl.oauthbearer.client.secret"]))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return oauth.Auth{}, err
	}
	defer response.Body.Close()
	var answer struct {
		Token string `json:"access_token"`
	}
	if response.StatusCode != http.StatusOK {
		return oauth.Auth{}, fmt.Errorf("the token endpoint answers %s", response.Status)
	}
	return oauth.Auth{Token: answer.Token}, json.NewDecoder(response.Body).Decode(&answer)
}
