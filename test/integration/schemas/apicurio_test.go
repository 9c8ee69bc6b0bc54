//go:build integration

package schemas

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/avro"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/schemas"
	"invalidator/test/integration/harness"
)

const usersAvro = `{"type":"record","name":"Envelope","namespace":"s.shop.users","fields":[{"name":"after","type":{"type":"record","name":"Value","fields":[` +
	`{"name":"id","type":"long"},{"name":"price","type":["null",{"type":"bytes","logicalType":"decimal","precision":10,"scale":2,` +
	`"connect.name":"org.apache.kafka.connect.data.Decimal","connect.parameters":{"scale":"2"}}]}]}},` +
	`{"name":"source","type":{"type":"record","name":"Source","fields":[{"name":"connector","type":"string"},{"name":"db","type":"string"},{"name":"table","type":"string"}]}},` +
	`{"name":"op","type":"string"}]}`

// apicurio runs a registry, ends it with the test, and returns where it listens.
func apicurio(t *testing.T) (addr string, cmd *exec.Cmd) {
	t.Helper()
	addr = harness.FreeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd = exec.Command("../../../dev", "registry", port)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting the registry: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the registry's log:\n%s", log.String())
		}
	})
	harness.Await(t, "the registry's answer", func() (bool, string) {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the registry ended: %v", err)
		default:
		}
		resp, err := http.Get("http://" + addr + "/apis/ccompat/v7/subjects")
		if err != nil {
			return false, err.Error()
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK, resp.Status
	})
	return addr, cmd
}

func post(t *testing.T, url string, headers map[string]string, body string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v: %s", resp.Status, err, answer)
	}
}

// I7: the same record reads the same by each id that the registry gives its schema; JSON Schema is refused by name; an id that
// it does not know, and a registry that is down, are worth another try.
func TestI7Apicurio(t *testing.T) {
	addr, cmd := apicurio(t)
	confluent := "http://" + addr + "/apis/ccompat/v7"
	quoted := strconv.Quote(usersAvro)
	var four struct{ ID uint32 }
	post(t, confluent+"/subjects/s.shop.users-value/versions", map[string]string{"Content-Type": "application/json"}, `{"schema":`+quoted+`}`, &four)
	var other struct{ ID uint32 }
	post(t, confluent+"/subjects/json-value/versions", map[string]string{"Content-Type": "application/json"},
		`{"schemaType":"JSON","schema":"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":\"object\"}"}`, &other)
	var own struct{ GlobalID, ContentID uint64 }
	post(t, "http://"+addr+"/apis/registry/v2/groups/g/artifacts", map[string]string{"Content-Type": "application/json", "X-Registry-ArtifactType": "AVRO", "X-Registry-ArtifactId": "users"}, usersAvro, &own)

	body, err := avro.MustParse(usersAvro).Encode(map[string]any{
		"after": map[string]any{"id": int64(42), "price": []byte{0x2f, 0x18}}, "source": map[string]any{"connector": "mysql", "db": "shop", "table": "users"}, "op": "c",
	})
	if err != nil {
		t.Fatal(err)
	}
	client, err := schemas.New(schemas.Options{URL: confluent})
	if err != nil {
		t.Fatal(err)
	}
	cols := cdc.NewColumns([]cdc.Column{{Name: "id"}, {Name: "price"}})
	decoder := func() *envelope.Decoder {
		d, err := envelope.NewDecoder(envelope.Config{Format: envelope.Avro, Schemas: client, Select: func(string, cdc.TableID) *cdc.Columns { return cols }})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	id4 := func(n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{0}, n) }
	id8 := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	for name, rec := range map[string]envelope.Record{
		"4 bytes":   {Value: append(id4(four.ID), body...)},
		"8 bytes":   {Value: append(append([]byte{0}, id8(own.GlobalID)...), body...)},
		"globalId":  {Value: body, Headers: []envelope.Header{{Key: "apicurio.value.globalId", Value: id8(own.GlobalID)}}},
		"contentId": {Value: body, Headers: []envelope.Header{{Key: "apicurio.value.contentId", Value: id8(own.ContentID)}}},
	} {
		t.Run(name, func(t *testing.T) {
			c, ignored, err := decoder().DecodeContext(t.Context(), rec)
			if err != nil || ignored != "" {
				t.Fatalf("%q, %v", ignored, err)
			}
			if id, price := c.After[0].Text(), c.After[1].Text(); id != "42" || price != "120.56" || c.TableID.String() != "shop.users" {
				t.Errorf("%s: id %s, price %s", c.TableID, id, price)
			}
		})
	}

	fails := func(rec envelope.Record, retry bool, want string) {
		t.Helper()
		_, _, err := decoder().DecodeContext(t.Context(), rec)
		var de *envelope.DecodeError
		if !errors.As(err, &de) || de.Retryable() != retry || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v; want %q, retryable %t", err, want, retry)
		}
	}
	fails(envelope.Record{Value: append(id4(other.ID), body...)}, false, "JSON: only Avro is read")
	fails(envelope.Record{Value: append(id4(4711), body...)}, true, "does not know this schema yet")
	fails(envelope.Record{Value: body, Headers: []envelope.Header{{Key: "apicurio.value.globalId", Value: id8(4711)}}}, true, "does not know this schema yet")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "the registry's end", func() (bool, string) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil, "it still takes connections"
	})
	fails(envelope.Record{Value: append(id4(4712), body...)}, true, addr)
	if _, _, err := decoder().DecodeContext(t.Context(), envelope.Record{Value: append(id4(four.ID), body...)}); err != nil {
		t.Errorf("a schema that was fetched before: %v", err)
	}
}
