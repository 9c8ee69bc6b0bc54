package main

import (
	"context"

	"invalidator/internal/app"
	"invalidator/internal/config"
	"invalidator/internal/obs"
	"invalidator/internal/page"
)

// pageOf makes the page of a process, which shows the whole fleet, until letGo is called.
func pageOf(e *env, c *config.Config) (show func(app.Live) []obs.Route, letGo func()) {
	var p *page.Page
	show = func(l app.Live) []obs.Route {
		p = page.New(page.Source{
			Open: func(ctx context.Context) (page.FleetReader, error) { return app.OpenFleet(ctx, c, e.log) },
			View: l.View, Mappings: l.Mappings, Version: obs.Version(),
		})
		return p.Routes()
	}
	return show, func() {
		if p != nil {
			p.Close()
		}
	}
}
