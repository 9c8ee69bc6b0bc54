package memcachetest

import "strconv"

// RequireToken has each new connection say user and password first, as a memcached with -Y does: as the value of a set, whatever its
// key.
func (s *Server) RequireToken(user, password string) {
	token := user + " " + password
	s.token.Store(&token)
}

const (
	unauthenticated = "CLIENT_ERROR unauthenticated"
	wrongToken      = "CLIENT_ERROR authentication failure"
)

// authenticate is run until it has succeeded.
func (ses *session) authenticate(words []string) error {
	if len(words) < 5 || words[0] != "set" {
		return ses.answer(unauthenticated)
	}
	length, err := strconv.Atoi(words[4])
	if err != nil || length < 0 {
		return ses.answer(badChunk)
	}
	value, ok, err := ses.value(length)
	if !ok {
		return err
	}
	if string(value) != *ses.token {
		return ses.answer(wrongToken)
	}
	ses.token = nil
	return ses.answer("STORED")
}
