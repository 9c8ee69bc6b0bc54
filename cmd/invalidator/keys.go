package main

import "invalidator/sink"

// shownKey is a key in --json. Its form is stable: key holds what JSON can show, with U+FFFD for each byte that is no UTF-8, and
// key_base64 the bytes, where the key has such, a space or a control byte.
type shownKey struct {
	Key       string `json:"key"`
	KeyBase64 string `json:"key_base64,omitempty"`
}

func showKey(key string) shownKey { return shownKey{key, sink.Base64(key)} }

// shownCopy is a copy in --json.
type shownCopy struct {
	Node string `json:"node"`
	shownKey
}

func showCopies(copies []sink.Copy) []shownCopy {
	shown := make([]shownCopy, len(copies))
	for i, c := range copies {
		shown[i] = shownCopy{c.Node, showKey(c.Key)}
	}
	return shown
}
