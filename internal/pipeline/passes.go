package pipeline

import (
	"context"
	"time"
)

type passes struct{}

func (ps *passes) stop()                     {}
func (ps *passes) idle() time.Duration       { return time.Hour }
func (p *partition) pay(ctx context.Context) {}
