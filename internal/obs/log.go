package obs

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"invalidator/sink"
)

// NewLog makes a logger that writes lines of format "text" or "json" at level "debug", "info", "warn" or "error". keys says how keys show in
// them: as a "hash", in "full", or as "none".
func NewLog(w io.Writer, format, level, keys string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q (use debug, info, warn or error)", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	var h slog.Handler
	switch format {
	case "text":
		h = slog.NewTextHandler(w, opts)
	case "json":
		h = slog.NewJSONHandler(w, opts)
	default:
		return nil, fmt.Errorf("log format %q (use text or json)", format)
	}
	switch keys {
	case "hash":
		return slog.New(h), nil // as they show by themselves
	case "full", "none":
		return slog.New(keysHandler{h, keys == "full"}), nil
	}
	return nil, fmt.Errorf("log keys %q (use hash, full or none)", keys)
}

// keysHandler shows keys in full, or none.
type keysHandler struct {
	slog.Handler
	full bool
}

func (h keysHandler) show(a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case sink.LoggedKey:
		a.Value = slog.StringValue("***")
		if h.full {
			a.Value = slog.StringValue(sink.Show(string(v)))
		}
	case sink.LoggedReason:
		if h.full {
			a.Value = slog.AnyValue(v.Err)
		}
	}
	return a
}

// Handle implements slog.Handler.
func (h keysHandler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(h.show(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// WithAttrs implements slog.Handler.
func (h keysHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	shown := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		shown[i] = h.show(a)
	}
	return keysHandler{h.Handler.WithAttrs(shown), h.full}
}

// WithGroup implements slog.Handler.
func (h keysHandler) WithGroup(name string) slog.Handler {
	return keysHandler{h.Handler.WithGroup(name), h.full}
}
