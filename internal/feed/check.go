package feed

import (
	"context"
	"slices"
	"time"

	"invalidator/cdc"
)

const (
	checkEvery   = time.Minute      // a lost publication, a dropped table: known within it
	checkTimeout = 20 * time.Second // of one check, which asks a catalogue
)

// checkLoop asks the source at the start and each minute whether it can be fed, beside the stream. What is found is told
// once, and when it is over. What is in error is the feeder's to leave out; the rest goes on.
func (s *source) checkLoop(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	told := map[string]cdc.Finding{}
	for {
		told = s.check(ctx, told)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// check tells what is new, and what is over, and returns what stands. A source that cannot be asked is the run's to report,
// and so is what is wrong with a source as a whole while it is not fed: the run meets the same.
func (s *source) check(ctx context.Context, told map[string]cdc.Finding) map[string]cdc.Finding {
	limit, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	findings, err := s.Feeder.Check(limit)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Debug("checking the source", "error", err)
		}
		return told
	}
	now := map[string]cdc.Finding{}
	failing, warned := 0, 0
	for i := range findings {
		if findings[i].Source == "" {
			findings[i].Source = s.Name
		}
		f := findings[i]
		text := f.String()
		if f.Severity == cdc.SeverityError {
			failing++
		} else {
			warned++
		}
		if f.Severity == cdc.SeverityError {
			s.findings.set(text, text)
			if f.Table == "" && !s.feeding.Load() {
				continue
			}
		}
		now[text] = f
		if _, ok := told[text]; ok {
			continue
		}
		if f.Severity == cdc.SeverityError {
			s.log.Error("a check of the source fails: what it is about is not fed, and is tried again", "finding", text)
		} else {
			s.log.Warn("a check of the source warns", "finding", text)
		}
	}
	s.findings.keep(func(about string) bool {
		return about == aboutRun || slices.ContainsFunc(findings, func(f cdc.Finding) bool { return f.String() == about })
	})
	for text := range told {
		if _, ok := now[text]; !ok {
			s.log.Info("a finding about the source is over", "finding", text)
		}
	}
	s.metrics.failing.Set(float64(failing))
	s.metrics.warned.Set(float64(warned))
	return now
}
