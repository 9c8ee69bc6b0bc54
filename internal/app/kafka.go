package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
)

// Backoff between two attempts at a broker that is away.
const (
	kafkaBackoffMin = time.Second
	kafkaBackoffMax = 15 * time.Second
)

// kafkaOptions turns the kafka section into the changelog's options.
func kafkaOptions(k config.Kafka, log *slog.Logger) (changelog.Options, error) {
	o := changelog.Options{Brokers: k.Brokers, Log: log}
	if len(k.Brokers) == 0 {
		return o, errors.New("no broker is named (set kafka.brokers)")
	}
	if k.SASL != nil {
		o.SASL = changelog.SASL{Mechanism: changelog.Mechanism(k.SASL.Mechanism), User: k.SASL.User, Password: k.SASL.Password.Reveal}
	}
	t, err := tlsConfig("kafka.tls", k.TLS)
	if err != nil {
		return o, err
	}
	o.TLS = t
	return o, nil
}

// topicSettings are the settings of every topic that we make.
func topicSettings(c *config.Config) changelog.Settings {
	return changelog.Settings{
		Prefix:      c.Kafka.TopicPrefix,
		Partitions:  int32(c.Kafka.Partitions),
		Replication: int16(c.Kafka.Replication),
		MaxTTL:      c.Cache.MaxTTL,
	}
}

// ensureOwnTopics waits for a broker and makes our own topics. Findings are logged; they stop nothing.
func ensureOwnTopics(ctx context.Context, c *config.Config, o changelog.Options, log *slog.Logger) error {
	return ensureTopics(ctx, topicSettings(c).Own(), o, log)
}

func ensureTopics(ctx context.Context, specs []changelog.TopicSpec, o changelog.Options, log *slog.Logger) error {
	for backoff := kafkaBackoffMin; ; backoff = min(2*backoff, kafkaBackoffMax) {
		findings, err := tryTopics(ctx, specs, o)
		if err == nil {
			for _, f := range findings {
				log.Warn(f.String())
			}
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		log.Error("waiting for kafka", "error", err, "again_in", backoff)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff):
		}
	}
}

func tryTopics(ctx context.Context, specs []changelog.TopicSpec, o changelog.Options) ([]changelog.Finding, error) {
	cl, err := o.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	findings, err := changelog.EnsureTopics(ctx, kadm.NewClient(cl), specs)
	if err != nil {
		return nil, fmt.Errorf("making our own topics: %w", err)
	}
	return findings, nil
}

// kafkaUser is our user as the brokers' ACLs name it; empty where only the broker knows (a client certificate, or none).
func kafkaUser(k config.Kafka) string {
	if k.SASL == nil {
		return ""
	}
	return k.SASL.User
}
