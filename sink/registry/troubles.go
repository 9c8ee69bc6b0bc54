package registry

import "log/slog"

// troubles tells a person of each trouble when it begins, when its text changes, and when it is over.
type troubles struct {
	log  *slog.Logger
	open map[string]string // what -> the text that was told
}

func newTroubles(log *slog.Logger) *troubles {
	return &troubles{log: log, open: make(map[string]string)}
}

// tell reports err about what, or with a nil err that it is mended.
func (t *troubles) tell(what string, err error) {
	told, known := t.open[what]
	switch {
	case err == nil && known:
		delete(t.open, what)
		t.log.Info("registry trouble is over", "what", what)
	case err != nil && (!known || told != err.Error()):
		t.open[what] = err.Error()
		t.log.Error("registry trouble: the last good ring and hot keys, where there are any, stay in use", "what", what, "err", err)
	}
}
