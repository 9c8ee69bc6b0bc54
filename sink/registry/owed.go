package registry

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// OwedKeys are the keys in etcd that say what a node owes, for whoever takes nodes back: <prefix><node, percent-encoded>. They have no lease:
// a worker that dies must not make it look as if nothing were owed. Each is replaced, or removed, only where it still is as the caller saw it, so
// that a paused worker which goes on late changes nothing. It is safe for concurrent use.
type OwedKeys struct {
	cfg    EtcdConfig
	prefix string

	mu     sync.Mutex // guards what follows
	client *clientv3.Client
}

// OwedKey is one key as etcd holds it.
type OwedKey struct {
	Value    []byte
	Revision int64 // of its last change
}

// NewOwedKeys connects to nobody yet. prefix is not empty.
func NewOwedKeys(cfg EtcdConfig, prefix string) *OwedKeys {
	return &OwedKeys{cfg: cfg.withDefaults(), prefix: prefix}
}

// Close lets go of the connection.
func (k *OwedKeys) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != nil {
		k.client.Close()
	}
}

// List returns all keys under the prefix, by node, also those that others wrote. A key that no node's name can have given is left out.
func (k *OwedKeys) List(ctx context.Context) (map[string]OwedKey, error) {
	cl, err := k.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := cl.Get(ctx, k.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading what nodes owe under %s in etcd: %w", k.prefix, err)
	}
	all := make(map[string]OwedKey, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		node, err := url.PathUnescape(strings.TrimPrefix(string(kv.Key), k.prefix))
		if err == nil && k.name(node) == string(kv.Key) {
			all[node] = OwedKey{kv.Value, kv.ModRevision}
		}
	}
	return all, nil
}

// Put writes a node's key where it still is of revision was; 0: where there is none. It returns the new revision, or 0 where it is another by now.
func (k *OwedKeys) Put(ctx context.Context, node string, value []byte, was int64) (revision int64, err error) {
	return k.change(ctx, node, was, clientv3.OpPut(k.name(node), string(value)))
}

// Remove takes a node's key away where it still is of revision was. It reports whether it was.
func (k *OwedKeys) Remove(ctx context.Context, node string, was int64) (bool, error) {
	revision, err := k.change(ctx, node, was, clientv3.OpDelete(k.name(node)))
	return revision != 0, err
}

func (k *OwedKeys) change(ctx context.Context, node string, was int64, op clientv3.Op) (int64, error) {
	cl, err := k.connect()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := cl.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(k.name(node)), "=", was)).Then(op).Commit()
	switch {
	case err != nil:
		return 0, fmt.Errorf("writing what %s owes to etcd: %w", node, err)
	case !resp.Succeeded:
		return 0, nil
	}
	return resp.Header.Revision, nil
}

// name is a node's key: all bytes but letters, digits, '-', '_', '.' and '~' are percent-encoded.
func (k *OwedKeys) name(node string) string {
	return k.prefix + strings.ReplaceAll(url.QueryEscape(node), "+", "%20")
}

func (k *OwedKeys) connect() (*clientv3.Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client == nil {
		cl, err := k.cfg.client(context.Background())
		if err != nil {
			return nil, fmt.Errorf("connecting to etcd: %w", err)
		}
		k.client = cl
	}
	return k.client, nil
}

// client makes a client. It dials only where it has to sign in.
func (c EtcdConfig) client(ctx context.Context) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:            c.Endpoints,
		DialTimeout:          c.DialTimeout,
		DialKeepAliveTime:    aliveTime,
		DialKeepAliveTimeout: aliveTime,
		Username:             c.Username,
		Password:             c.Password,
		TLS:                  c.TLS,
		Context:              ctx,
		Logger:               zap.NewNop(), // what matters comes back as errors
	})
}
