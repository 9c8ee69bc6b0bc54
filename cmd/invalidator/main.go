// Command invalidator is the one binary of the change-log invalidation pipeline: feeders, workers, the tools for mapping
// files and the demo. `invalidator --help` lists its commands; each stands in a file of its own here.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/willabides/kongplete"

	"invalidator/internal/config"
	"invalidator/internal/obs"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitMisuse = 2
)

// cli is the command line. stdout carries what was asked, stderr the rest.
type cli struct {
	LogLevel  string `help:"debug, info, warn or error." default:"info" env:"INVALIDATOR_LOG_LEVEL"`
	LogFormat string `help:"text or json." default:"text" env:"INVALIDATOR_LOG_FORMAT"`
	LogKeys   string `help:"How keys show in the log, which can hold personal data: hash, full or none." default:"hash" env:"INVALIDATOR_LOG_KEYS"`

	Feed       feedCmd       `cmd:"" help:"Feed databases' logs into Kafka."`
	Run        runCmd        `cmd:"" help:"Work: delete every copy of every key that a change in Kafka feeds."`
	Check      checkCmd      `cmd:"" help:"Ask every source, broker, ring and mapping whether it will work, and change nothing."`
	Status     statusCmd     `cmd:"" help:"Show the fleet: processes and mappings, what is owed, how far and how old each log is, replays and flushes, gaps; fail if something needs a person."`
	Trace      traceCmd      `cmd:"" help:"Say why a copy of a key was stale: which changes gave it, when and where it was deleted, what is owed of it."`
	Demo       demoCmd       `cmd:"" help:"Show the whole pipeline on this machine, step by step."`
	Replay     replayCmd     `cmd:"" help:"Have what changed in a window of the log deleted again, and see how far that is."`
	Flush      flushCmd      `cmd:"" help:"Have all keys of a pool or a node deleted, part by part, and see how far that is."`
	Gap        gapCmd        `cmd:"" help:"Look at what was lost of the logs, and decide about it."`
	Deadletter deadletterCmd `cmd:"" help:"Look at the records that could not be handled, and decide about them."`
	Pause      pauseCmd      `cmd:"" help:"Hold a pool back: the brake for a bad mapping."`
	Resume     resumeCmd     `cmd:"" help:"Let a pool that was held back go on."`
	Invalidate invalidateCmd `cmd:"" help:"Delete every copy of some keys, through the log."`
	Explain    explainCmd    `cmd:"" help:"Say which keys and copies a change would delete. Only --topic needs a service."`
	Ring       ringCmd       `cmd:"" help:"Look at the ring."`
	Mappings   mappingsCmd   `cmd:"" help:"Check, test and compare mapping files."`
	Config     configCmd     `cmd:"" help:"Print the configuration as loaded, with every default; secrets are hidden."`
	Completion completionCmd `cmd:"" help:"Print what has a shell complete command lines of ours."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
}

// env is what a command may touch of the outside.
type env struct {
	ctx            context.Context
	stdin          io.Reader
	stdout, stderr io.Writer
	log            *slog.Logger
}

// configFlag is embedded by the commands that need the configuration.
type configFlag struct {
	Config string `help:"The configuration file." default:"invalidator.yaml" env:"INVALIDATOR_CONFIG" type:"path" short:"c"`
}

func (f configFlag) load() (*config.Config, error) { return config.Load(f.Config) }

// misuse is a command line that asks for what there is not, found out only when the command ran. It ends it with exit code 2.
type misuse struct{ error }

// errFailed ends a command with exit code 1 when what there was to say has been said.
var errFailed = errors.New("failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var c cli
	exit := -1
	parser, err := kong.New(&c,
		kong.Name("invalidator"),
		kong.Description("Reads databases' change logs and deletes every cached copy of every key that a changed row feeds."),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exit = code }),
	)
	if err != nil {
		panic(err) // the command line is declared wrongly: a test would have seen it
	}
	kongplete.Complete(parser) // of a shell that asks what may come next
	if exit >= 0 {
		return exit
	}
	kctx, err := parser.Parse(numbersBelowZero(args))
	if exit >= 0 { // --help
		return exit
	}
	if err != nil {
		fmt.Fprintf(stderr, "invalidator: %s (see invalidator --help)\n", strings.TrimPrefix(err.Error(), "[<dir>]: "))
		return exitMisuse
	}
	log, err := obs.NewLog(stderr, c.LogFormat, c.LogLevel, c.LogKeys)
	if err != nil {
		fmt.Fprintf(stderr, "invalidator: %v\n", err)
		return exitMisuse
	}
	err = kctx.Run(&env{ctx, stdin, stdout, stderr, log})
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFailed):
		return exitFailed
	}
	fmt.Fprintf(stderr, "invalidator: %v\n", err)
	if errors.As(err, new(misuse)) {
		return exitMisuse
	}
	return exitFailed
}
