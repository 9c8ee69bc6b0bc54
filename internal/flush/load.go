package flush

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Limit is above which load a flush waits.
type Limit struct {
	Expr string  // what is measured: empty for the nodes' own counters, a URL that answers with a number, or a PromQL expression
	Max  float64 // above 0
}

// ParseLimit reads the text of --max-load: LIMIT for the nodes' own counters a second, URL<LIMIT for a number that a URL answers with, or EXPR<LIMIT for a PromQL expression.
func ParseLimit(text string) (Limit, error) {
	expr, number := "", text
	if i := strings.LastIndexByte(text, '<'); i >= 0 {
		if expr, number = strings.TrimSpace(text[:i]), text[i+1:]; expr == "" {
			return Limit{}, fmt.Errorf("the limit %q says nothing before the < (write LIMIT, EXPR<LIMIT or URL<LIMIT)", text)
		}
	}
	most, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(most > 0) || math.IsInf(most, 0) {
		return Limit{}, fmt.Errorf("the limit %q does not end in a number above 0 (write LIMIT, EXPR<LIMIT or URL<LIMIT)", text)
	}
	return Limit{expr, most}, nil
}

// isURL says whether what is measured is a number that a URL answers with.
func isURL(expr string) bool {
	return strings.HasPrefix(expr, "http://") || strings.HasPrefix(expr, "https://")
}

const (
	// loadTimeout bounds one look at a load, so that a monitor which hangs counts as above the limit soon.
	loadTimeout = 2 * time.Second
	// maxLoadAnswer is more than a number, or Prometheus's answer with one, has, in bytes.
	maxLoadAnswer = 64 << 10
)

// signal tells a load. Its error is one that cannot be read.
type signal func(ctx context.Context) (float64, error)

// signalOf is what an expression measures.
func (o *Options) signalOf(expr string, nodes signal) (signal, error) {
	switch {
	case expr == "":
		return nodes, nil
	case isURL(expr):
		if _, err := url.Parse(expr); err != nil {
			return nil, fmt.Errorf("the load's URL cannot be used: %w", err)
		}
		return func(ctx context.Context) (float64, error) { return o.number(ctx, expr) }, nil
	case o.Prometheus == "":
		return nil, errors.New("the limit of the load is a PromQL expression, and the workers' configuration does not say where Prometheus is (set replay.flush.prometheus)")
	}
	at := strings.TrimSuffix(o.Prometheus, "/") + "/api/v1/query?query=" + url.QueryEscape(expr)
	return func(ctx context.Context) (float64, error) { return o.query(ctx, at) }, nil
}

// number asks a URL for a number.
func (o *Options) number(ctx context.Context, at string) (float64, error) {
	body, status, err := o.get(ctx, at)
	switch {
	case err != nil:
		return 0, err
	case status != http.StatusOK:
		return 0, fmt.Errorf("the URL answers %d %s", status, http.StatusText(status))
	}
	return readNumber(strings.TrimSpace(string(body)))
}

func readNumber(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) {
		return 0, fmt.Errorf("%.40q is no number", text)
	}
	return n, nil
}

// promAnswer is what Prometheus answers to a query, also to one that it refuses.
type promAnswer struct {
	Status string `json:"status"`
	Error  string `json:"error"`
	Data   struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	} `json:"data"`
}

// query asks Prometheus.
func (o *Options) query(ctx context.Context, at string) (float64, error) {
	body, status, err := o.get(ctx, at)
	if err != nil {
		return 0, err
	}
	var answer promAnswer
	switch err := json.Unmarshal(body, &answer); {
	case err != nil && status != http.StatusOK:
		return 0, fmt.Errorf("asking Prometheus: it answers %d %s", status, http.StatusText(status))
	case err != nil:
		return 0, notProm(err)
	case answer.Status != "success":
		return 0, fmt.Errorf("asking Prometheus: it answers %q: %s", answer.Status, answer.Error)
	}
	return answer.number()
}

func notProm(err error) error { return fmt.Errorf("the answer is none of Prometheus's: %w", err) }

// number is the one that it has: a scalar's, or that of a vector of one.
func (a *promAnswer) number() (float64, error) {
	value := a.Data.Result
	switch a.Data.Type {
	case "scalar":
	case "vector":
		var series []struct {
			Value json.RawMessage `json:"value"`
		}
		if err := json.Unmarshal(value, &series); err != nil {
			return 0, notProm(err)
		}
		if len(series) != 1 {
			return 0, fmt.Errorf("the expression gives %d series, not one number (put sum() around it)", len(series))
		}
		value = series[0].Value
	default:
		return 0, fmt.Errorf("the expression gives a %q, not a number", a.Data.Type)
	}
	var at float64
	var text string
	if err := json.Unmarshal(value, &[]any{&at, &text}); err != nil {
		return 0, notProm(err)
	}
	return readNumber(text)
}

func (o *Options) get(ctx context.Context, at string) (body []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, 0, err
	}
	resp, err := o.HTTP.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxLoadAnswer))
	if err != nil {
		return nil, 0, fmt.Errorf("reading the load: %w", err)
	}
	return body, resp.StatusCode, nil
}
