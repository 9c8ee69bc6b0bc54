package app

import (
	"context"
	"log/slog"
	"time"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/pipeline"
)

// DecodingOf says how the workers read a topic: as its source does, or as our own where the topic is no source's.
func DecodingOf(c *config.Config, topic string) (envelope.Config, error) {
	if topic == changelog.NamesFor(c.Kafka.TopicPrefix).Keys {
		return pipeline.KeySource(topic).Decode, nil
	}
	if len(c.Sources) == 0 {
		return envelope.Config{Format: envelope.Auto}, nil
	}
	sources, _, err := topicsOf(c)
	if err != nil {
		return envelope.Config{}, err
	}
	for _, s := range sources {
		if s.Pattern.MatchString(topic) {
			return s.Decode, nil
		}
	}
	return envelope.Config{Format: envelope.Auto}, nil
}

// ReadTopic is changelog.ReadTopic at the configured brokers.
func ReadTopic(ctx context.Context, c *config.Config, topic string, since time.Time, follow bool, log *slog.Logger, fn func(changelog.TopicRecord) error) error {
	o, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return err
	}
	return changelog.ReadTopic(ctx, o, topic, since, follow, fn)
}
