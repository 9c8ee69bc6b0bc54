package main

import "io"

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// completions are what each shell reads. It then runs invalidator with COMP_LINE, the line so far, which prints what may come next.
var completions = map[string]string{
	"bash": "complete -o bashdefault -o default -C invalidator invalidator\n",
	"zsh":  "autoload -U +X bashcompinit && bashcompinit\ncomplete -o bashdefault -o default -C invalidator invalidator\n",
	"fish": `function __complete_invalidator
    set -lx COMP_LINE (commandline -cp)
    test -z (commandline -ct); and set COMP_LINE "$COMP_LINE "
    invalidator
end
complete -c invalidator -a "(__complete_invalidator)"
`,
}

// Run prints the shell's part.
func (c completionCmd) Run(e *env) error {
	_, err := io.WriteString(e.stdout, completions[c.Shell])
	return err
}
