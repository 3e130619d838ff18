package process

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Spec says what to run and how.
type Spec struct {
	// ID names the process; empty means that one is made up.
	ID       string
	Command  []string
	Env      map[string]string
	ClearEnv bool
	// Dir is an absolute path.
	Dir string
	// User is "name", "uid", "name:group" or "uid:gid"; empty means the daemon's own.
	User string
	// Terminal, when set, gives the process a terminal of that size.
	Terminal *Size
	// Timeout kills the whole tree; zero means none.
	Timeout time.Duration
	Limits  []Limit
	// Stdin keeps standard input open for Write; a terminal always does.
	Stdin bool
	// OutputBytes is the capacity of the Log.
	OutputBytes int
	// CaptureBytes keeps the head of each stream for Captured.
	CaptureBytes int
	// Tee sees every piece of output, in order per stream.
	Tee func(Stream, []byte)
	Tag string
	// Forget drops the process from the registry as soon as it has ended.
	Forget bool
	// Entrypoint marks the container's own process, Service one that is kept running.
	Entrypoint, Service bool
}

// StartError says why a process could not be started.
type StartError struct {
	Kind StartErrorKind
	Err  error
}

// StartErrorKind is what a client can do about a StartError.
type StartErrorKind int

// The kinds of StartError.
const (
	// StartFailed is the system's fault.
	StartFailed StartErrorKind = iota
	// StartNotFound is the user's: the program or the working directory does not exist.
	StartNotFound
	// StartDenied is the user's: the program may not be executed.
	StartDenied
	// StartInvalid is the user's: the request makes no sense.
	StartInvalid
	// StartExhausted says that too many processes run already.
	StartExhausted
	// StartClosing says that the daemon is shutting down.
	StartClosing
	// StartCancelled says that the caller took the request back before it was carried out.
	StartCancelled
)

// ErrNoProgram says that no directory of the PATH holds the program; the words are those of the reference daemon.
var ErrNoProgram = errors.New("executable file not found in $PATH")

func (e *StartError) Error() string { return e.Err.Error() }

func (e *StartError) Unwrap() error { return e.Err }

func startError(err error) error {
	var known *StartError
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &StartError{StartNotFound, err}
	case errors.Is(err, fs.ErrPermission):
		return &StartError{StartDenied, err}
	}
	return &StartError{StartFailed, err}
}

// privatePrefix starts the names of the variables that configure the daemon; no child sees them.
const privatePrefix = "AGENT_SANDBOXD_"

// Environment is the daemon's own environment as its children see it, every name once.
func Environment() []string {
	var kept []string
	seen := map[string]bool{marker: true}
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); !seen[name] && !strings.HasPrefix(name, privatePrefix) {
			kept = append(kept, entry)
			seen[name] = true
		}
	}
	return kept
}

// terminalType is what a program on a terminal finds in TERM when the request names none.
const terminalType = "xterm-256color"

// environment lays the user's own variables over the base, and the spec's over both. Entries of the base, which names every variable
// once, are taken as they are: putting each together anew would be a quarter of what a call allocates.
func (s *Spec) environment(base []string, id string, own map[string]string) []string {
	if s.ClearEnv {
		base = nil
	}
	laid := make(map[string]string, len(s.Env)+len(own)+2)
	maps.Copy(laid, own)
	laid["PWD"] = s.Dir
	maps.Copy(laid, s.Env)
	laid[marker] = id
	result := make([]string, 0, len(base)+len(laid)+1)
	for name, value := range laid {
		result = append(result, name+"="+value)
	}
	for _, entry := range base {
		name, _, _ := strings.Cut(entry, "=")
		if _, over := laid[name]; !over {
			result = append(result, entry)
		}
	}
	if s.Terminal != nil && !slices.ContainsFunc(result, func(entry string) bool { return strings.HasPrefix(entry, "TERM=") }) {
		result = append(result, "TERM="+terminalType)
	}
	return result
}

func (s *Spec) check() error {
	if len(s.Command) == 0 || s.Command[0] == "" {
		return &StartError{StartInvalid, errors.New("command is required")}
	}
	for name := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return &StartError{StartInvalid, fmt.Errorf("environment variable name %q is not valid", name)}
		}
	}
	if err := CheckLimits(s.Limits); err != nil {
		return &StartError{StartInvalid, err}
	}
	return nil
}

// lookProgram finds the program of a command: first on the PATH the process will see, then on the daemon's own.
func lookProgram(name string, environment []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var denied error
	for _, list := range []string{pathOf(environment), os.Getenv("PATH")} {
		for _, directory := range filepath.SplitList(list) {
			if !filepath.IsAbs(directory) {
				continue
			}
			candidate := filepath.Join(directory, name)
			info, err := os.Stat(candidate)
			if err != nil || info.IsDir() {
				continue
			}
			if info.Mode()&0o111 != 0 {
				return candidate, nil
			}
			denied = explain(candidate, "/", fmt.Errorf("exec: %q: %w", candidate, fs.ErrPermission))
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &StartError{StartNotFound, fmt.Errorf("exec: %q: %w", name, ErrNoProgram)}
}

func pathOf(environment []string) string {
	for _, entry := range environment {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			return value
		}
	}
	return ""
}
