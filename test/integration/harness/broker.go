package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/test/integration/services"
)

// Broker is a Kafka of a test's own, which may be stopped: ./dev's serves every test.
type Broker struct {
	Addr string

	t     testing.TB
	conf  string
	log   *os.File
	cmd   *exec.Cmd
	ended chan struct{} // closed once the process is gone
}

// NewBroker starts one with the settings and from the files of ./dev's, and ends it with the test. secured, where it is not empty, is the
// address of a second listener where users sign in (SASL PLAIN) and may do what ACLs allow: user "us", password "x". Who comes to Addr
// may do all.
func NewBroker(t testing.TB, secured string) *Broker {
	t.Helper()
	addr, controller := FreeAddr(t), FreeAddr(t)
	conf := fmt.Sprintf("listeners=PLAINTEXT://%s,CONTROLLER://%s\nadvertised.listeners=PLAINTEXT://%s\ncontroller.quorum.voters=1@%s\n",
		addr, controller, addr, controller)
	if secured != "" {
		conf += fmt.Sprintf(securedSettings, addr, controller, secured, addr, secured)
	}
	b := newBroker(t, addr, conf)
	b.Start()
	return b
}

// NewTLSBroker starts a broker with a listener over TLS at logins, where users sign in by any mechanism (as NewBroker's user, with the same
// password also by SCRAM, once they are made at Addr; OAUTHBEARER takes unsigned tokens), and one at shows, where they show a certificate. both is
// the server's key and certificate, ca whom it believes, PEM files.
func NewTLSBroker(t testing.TB, logins, shows, both, ca string) *Broker {
	t.Helper()
	addr, controller := FreeAddr(t), FreeAddr(t)
	b := newBroker(t, addr, fmt.Sprintf(tlsSettings, addr, controller, logins, shows, addr, logins, shows, controller, both, ca))
	b.Start()
	return b
}

const tlsSettings = `listeners=PLAINTEXT://%s,CONTROLLER://%s,LOGINS://%s,SHOWS://%s
advertised.listeners=PLAINTEXT://%s,LOGINS://%s,SHOWS://%s
controller.quorum.voters=1@%s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGINS:SASL_SSL,SHOWS:SSL
listener.name.logins.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.logins.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_us="x";
listener.name.logins.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.logins.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.logins.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
listener.name.shows.ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location=%s
ssl.truststore.type=PEM
ssl.truststore.location=%s
`

// newBroker makes a broker that does not run yet. conf are settings that come after those of ./dev's, and win.
func newBroker(t testing.TB, addr, conf string) *Broker {
	t.Helper()
	dir := t.TempDir()
	b := &Broker{Addr: addr, t: t, conf: filepath.Join(dir, "server.properties")}
	settings, err := os.ReadFile(filepath.Join(services.Root(), "deploy", "local", "kafka.properties"))
	if err != nil {
		t.Fatal(err)
	}
	conf = fmt.Sprintf("%s\nlog.dirs=%s\n%s", settings, filepath.Join(dir, "data"), conf)
	if err := os.WriteFile(b.conf, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	if b.log, err = os.Create(filepath.Join(dir, "kafka.log")); err != nil {
		t.Fatal(err)
	}
	if out, err := b.java("kafka.tools.StorageTool", "format", "-t", "aW52YWxpZGF0b3ItZGV2MA", "-c", b.conf).CombinedOutput(); err != nil {
		t.Fatalf("formatting a broker's folder: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		b.Stop()
		if t.Failed() {
			text, _ := os.ReadFile(b.log.Name())
			t.Logf("the broker, the end of its log:\n%s", tail(string(text), 2000))
		}
	})
	return b
}

// securedSettings come after the others, and win.
const securedSettings = `listeners=PLAINTEXT://%s,CONTROLLER://%s,SECURED://%s
advertised.listeners=PLAINTEXT://%s,SECURED://%s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_PLAINTEXT
listener.name.secured.sasl.enabled.mechanisms=PLAIN
listener.name.secured.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_us="x";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
`

func (b *Broker) java(class string, args ...string) *exec.Cmd {
	b.t.Helper()
	jars := filepath.Join(services.Root(), ".dev", "lib", "kafka")
	if _, err := os.Stat(jars); err != nil {
		b.t.Fatalf("a broker of a test's own needs Kafka's files: %v (DEV_NATIVE=1 ./dev up kafka fetches them)", err)
	}
	args = append(append(strings.Fields(QuickJava), "-Xmx256m", "-cp", jars+"/*", class), args...)
	return exec.Command("java", args...)
}

// Start starts it and waits until it answers.
func (b *Broker) Start() {
	b.t.Helper()
	b.Launch()
	b.awaitAnswer()
}

// Launch is Start that does not wait.
func (b *Broker) Launch() {
	b.t.Helper()
	cmd, ended := b.java("kafka.Kafka", b.conf), make(chan struct{})
	cmd.Stdout, cmd.Stderr = b.log, b.log
	if err := cmd.Start(); err != nil {
		b.t.Fatalf("starting a broker: %v", err)
	}
	b.cmd, b.ended = cmd, ended
	go func() {
		cmd.Wait()
		close(ended)
	}()
}

func (b *Broker) awaitAnswer() {
	b.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr))
	if err != nil {
		b.t.Fatal(err)
	}
	defer cl.Close()
	Await(b.t, "the broker to answer", func() (bool, string) {
		ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Second)
		defer cancel()
		err := cl.Ping(ctx)
		return err == nil, fmt.Sprint(err)
	})
}

// Stop ends it as SIGKILL does.
func (b *Broker) Stop() {
	if b.cmd == nil {
		return
	}
	b.cmd.Process.Kill()
	<-b.ended
}

// Freeze makes it answer nothing, while its connections stand; Thaw lets it go on.
func (b *Broker) Freeze() { b.cmd.Process.Signal(syscall.SIGSTOP) }
func (b *Broker) Thaw()   { b.cmd.Process.Signal(syscall.SIGCONT) }
