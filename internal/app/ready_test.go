package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"invalidator/cdc"
	"invalidator/internal/config"
	"invalidator/internal/obs"
)

// A worker and a feeder are ready once they serve, and say until then what they wait for; they are healthy all the time.
func TestReady(t *testing.T) {
	const fed = "sources: [{name: shop, type: mysql, hosts: ['127.0.0.1:1'], user: u, include: [shop.*]}]\n"
	for _, tc := range []struct {
		name, text string
		noKafka    bool
		feeds      bool
		want       string // part of the reason; empty: it serves
	}{
		{name: "a worker", text: "cache: {ring: {file: ring.json}}\n"},
		{name: "a worker without Kafka", text: "cache: {ring: {file: ring.json}}\n", noKafka: true, want: waitsForTopics},
		{name: "a worker without a ring", text: "cache: {ring: {etcd: {endpoints: ['127.0.0.1:1']}}}\n", want: waitsForRing},
		{name: "a feeder", feeds: true},
		{name: "a feeder without Kafka", feeds: true, noKafka: true, want: waitsForTopics},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			broker := "127.0.0.1:1"
			if !tc.noKafka {
				cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
				if err != nil {
					t.Fatal(err)
				}
				defer cluster.Close()
				broker = cluster.ListenAddrs()[0]
			}
			dir, admin := t.TempDir(), freeAddr(t)
			write(t, dir, "ring.json", fmt.Sprintf(`{"epoch":1,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":%q,"zone":"a"},"replicas":[]}]}`, listen(t)))
			c := parse(t, dir, fmt.Sprintf("kafka: {brokers: [%q]}\nadmin: {listen: %q}\n%s%s", broker, admin, fed, tc.text))
			write(t, dir, "mappings.d/users.yaml", usersMapping)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				if tc.feeds {
					done <- (&Feed{Config: c, Log: quiet, Registry: obs.NewRegistry(), NewFeeder: func(config.Source, *slog.Logger) (cdc.Feeder, error) { return idleFeeder{}, nil }}).Run(ctx)
				} else {
					done <- (&Worker{Config: c, Log: quiet, Registry: obs.NewRegistry()}).Run(ctx)
				}
			}()
			waitFor(t, "/-/ready to say "+tc.want, func() bool {
				code, text := ask(admin, "/-/ready")
				return tc.want == "" && code == http.StatusOK || code == http.StatusServiceUnavailable && tc.want != "" && strings.Contains(text, tc.want)
			})
			if code, text := ask(admin, "/-/healthy"); code != http.StatusOK {
				t.Errorf("healthy says %d %q", code, text)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// freeAddr is an address of ours that nobody listens at.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// ask is what an admin listener answers; 0 while there is none.
func ask(addr, path string) (int, string) {
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// idleFeeder is a source in which nothing happens.
type idleFeeder struct{}

func (idleFeeder) Run(ctx context.Context, from cdc.Position, h cdc.Handler) error {
	if err := h.Started(ctx, cdc.Position{Pos: 1}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
func (idleFeeder) Confirm(cdc.Position)                          {}
func (idleFeeder) Check(context.Context) ([]cdc.Finding, error)  { return nil, nil }
func (idleFeeder) Restart(context.Context) (cdc.Position, error) { return cdc.Position{}, nil }
