package demo

import (
	"context"
	"fmt"
	"net/url"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcdPublisher publishes under a prefix of the demo's own.
type etcdPublisher struct {
	addr, prefix string
	client       *clientv3.Client
}

func openEtcd(ctx context.Context, addr, prefix string) (*etcdPublisher, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: connectTimeout, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd at %s: %w%s", addr, err, devUp)
	}
	p := &etcdPublisher{addr, prefix, client}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if _, err := client.Get(ctx, prefix); err != nil {
		client.Close()
		return nil, fmt.Errorf("asking etcd at %s: %w%s", addr, err, devUp)
	}
	return p, nil
}

func (p *etcdPublisher) about() string { return fmt.Sprintf("etcd at %s, under %s", p.addr, p.prefix) }

func (p *etcdPublisher) config() string {
	return fmt.Sprintf("{etcd: {endpoints: [%q], key: %sring, hot_prefix: %shot/}}", p.addr, p.prefix, p.prefix)
}

func (p *etcdPublisher) ring(ctx context.Context, record []byte) error {
	return p.put(ctx, "ring", string(record))
}

func (p *etcdPublisher) hot(ctx context.Context, key string, copies int) error {
	return p.put(ctx, "hot/"+url.PathEscape(key), fmt.Sprintf(`{"copies": %d}`, copies))
}

func (p *etcdPublisher) put(ctx context.Context, name, value string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	_, err := p.client.Put(ctx, p.prefix+name, value)
	return err
}

func (p *etcdPublisher) remove(ctx context.Context) error {
	defer p.client.Close()
	_, err := p.client.Delete(ctx, p.prefix, clientv3.WithPrefix())
	return err
}
