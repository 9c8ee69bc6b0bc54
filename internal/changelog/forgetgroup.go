package changelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrGroupRuns says that a group has members.
var ErrGroupRuns = errors.New("the group has members")

// ForgetGroup removes a group's commits, and all that the state topic says of where it was, so that its next first member begins it anew. Its error is
// ErrGroupRuns where it has members: then nothing is removed. A group that never was is none.
func ForgetGroup(ctx context.Context, o Options, state *StateStore, group string) error {
	cl, err := o.Connect(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	_, err = kadm.NewClient(cl).DeleteGroup(ctx, group)
	switch {
	case errors.Is(err, kerr.NonEmptyGroup):
		return ErrGroupRuns
	case err != nil && !errors.Is(err, kerr.GroupIDNotFound):
		return fmt.Errorf("removing the group %s: %w", group, err)
	}
	st, err := state.Load(ctx)
	if err != nil {
		return err
	}
	keys := []string{StateKey("fleet", group)}
	for _, kind := range []string{"seen", "partition", "journal"} {
		for key := range st.Under(kind, group) {
			keys = append(keys, key)
		}
	}
	return state.Remove(ctx, keys...)
}
