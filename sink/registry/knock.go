package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"time"
)

// knockTimeout bounds what is looked at of one endpoint.
const knockTimeout = 500 * time.Millisecond

// knock says what a connection to the first endpoint that takes none meets: the client connects behind the scenes, and keeps that to itself.
func knock(endpoints []string, secure *tls.Config) error {
	for _, endpoint := range endpoints {
		if err := knockAt(endpoint, secure); err != nil {
			return err
		}
	}
	return nil
}

func knockAt(endpoint string, secure *tls.Config) error {
	_, addr, found := strings.Cut(endpoint, "://")
	if !found {
		addr = endpoint
	}
	ctx, cancel := context.WithTimeout(context.Background(), knockTimeout)
	defer cancel()
	if secure == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	}
	conn, err := (&tls.Dialer{Config: secure}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	// A server that does not like our certificate says so after the handshake. One that does says nothing, or what it wants to say first.
	if err := conn.SetReadDeadline(time.Now().Add(knockTimeout)); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}
