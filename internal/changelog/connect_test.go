package changelog_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

func connectError(t *testing.T, o changelog.Options, extra ...kgo.Opt) string {
	t.Helper()
	cl, err := o.Connect(t.Context(), extra...)
	if err == nil {
		cl.Close()
		t.Fatal("connected")
	}
	var ce *changelog.ConnectError
	if !errors.As(err, &ce) {
		t.Fatalf("%T: %v", err, err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
	return err.Error()
}

func wantIn(t *testing.T, got string, wants ...string) {
	t.Helper()
	for _, w := range wants {
		if !strings.Contains(got, w) {
			t.Errorf("%q does not contain %q", got, w)
		}
	}
}

func TestConnect(t *testing.T) {
	c := changelogtest.Start(t)
	cl, err := c.Options.Connect(t.Context())
	must(t, err)
	cl.Close()
}

func TestConnectToNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	got := connectError(t, changelog.Options{Brokers: []string{addr}})
	wantIn(t, got, "kafka at "+addr, "is the broker running? check kafka.brokers")

	wantIn(t, connectError(t, changelog.Options{}), "set kafka.brokers")
}

// A firewall drops what is sent: nothing answers, and ten seconds are the most that anybody waits.
func TestConnectGivesUpAfterTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		got := connectError(t, changelog.Options{
			Brokers: []string{"kafka-1:9092", "kafka-2:9092", "kafka-3:9092"},
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		wantIn(t, got, "kafka-1:9092, kafka-2:9092, kafka-3:9092", "no answer")
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("gave up after %s", d)
		}
	})
}

func TestConnectNamesVersionRanges(t *testing.T) {
	c := changelogtest.Start(t)
	got := connectError(t, c.Options, kgo.MaxVersions(kversion.V0_10_2()))
	wantIn(t, got, "no protocol version in common", "Produce: broker 3..", "client 0..2", "pin no protocol version")
}

func TestConnectWithSASL(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "ann", "one"), kfake.Superuser("SCRAM-SHA-256", "bea", "two"), kfake.Superuser("SCRAM-SHA-512", "cat", "three"))
	must(t, err)
	t.Cleanup(c.Close)
	o := changelog.Options{Brokers: c.ListenAddrs()}
	for _, s := range []changelog.SASL{
		{Mechanism: changelog.Plain, User: "ann", Password: func() string { return "one" }},
		{Mechanism: changelog.ScramSHA256, User: "bea", Password: func() string { return "two" }},
		{Mechanism: changelog.ScramSHA512, User: "cat", Password: func() string { return "three" }},
	} {
		o.SASL = s
		cl, err := o.Connect(t.Context())
		if err != nil {
			t.Errorf("%s: %v", s.Mechanism, err)
			continue
		}
		cl.Close()
	}
	o.SASL.Password = func() string { return "wrong" }
	got := connectError(t, o)
	wantIn(t, got, "check kafka.sasl")
	if strings.Contains(got, "wrong") {
		t.Errorf("the password is shown: %s", got)
	}
	o.SASL = changelog.SASL{}
	wantIn(t, connectError(t, o), "TLS or SASL")
	o.SASL.Mechanism = "kerberos"
	wantIn(t, connectError(t, o), "kerberos", "scram-sha-256")
}
