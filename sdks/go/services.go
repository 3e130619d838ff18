package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
)

// servicesAnnotation is where a Sandbox declares what is kept running in it; it outlives the Pod.
const servicesAnnotation = "agent-sandbox.dev/services"

// Bounds of the annotation.
const (
	servicesMax      = 16
	servicesBytesMax = 8192
)

// serviceAttemptsMax: others may change the object between a look and a write; as often as this is looked again.
const serviceAttemptsMax = 8

var serviceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ServiceOptions say how a service runs.
type ServiceOptions struct {
	// Env is laid over the sandbox's environment.
	Env map[string]string
	// Dir is absolute, or relative to the sandbox's working directory, which is the default.
	Dir string
	// User is "name", "uid", "name:group" or "uid:gid"; default: the sandbox's own.
	User string
	// RequestTimeout limits how long the sandbox may take to start it, waking up included. Default two minutes.
	RequestTimeout time.Duration
}

// declaredService is a service as the annotation has it.
type declaredService struct {
	Name    string            `json:"name"`
	Command []string          `json:"command"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	User    string            `json:"user,omitempty"`
}

// endServiceLimit bounds the end of a service that could not be written down: the caller waits for its own error, and a sandbox that has gone
// answers nothing.
const endServiceLimit = 5 * time.Second

// StartService keeps a program running under a name: it is started again whenever it ends, and after a sleep. What ran under the name
// before is replaced; what it prints is in Logs.
func (b *Sandbox) StartService(ctx context.Context, name string, args []string, options ServiceOptions) error {
	if !serviceName.MatchString(name) {
		return newError(errorcode.InvalidArgument, "'%s' is no name of a service: 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends", name)
	}
	command := &Cmd{Args: args, Env: options.Env, Dir: options.Dir, User: options.User, RequestTimeout: options.RequestTimeout, ctx: ctx, box: b, service: name}
	if err := command.Start(); err != nil {
		return err
	}
	if err := command.Detach(); err != nil {
		return err
	}
	declared := declaredService{Name: name, Command: args, Env: options.Env, Cwd: options.Dir, User: options.User}
	err := b.changeServices(ctx, func(known []declaredService) []declaredService { return append(withoutService(known, name), declared) })
	if err != nil {
		// What cannot be written down would be gone after a sleep: the caller is not left with half of it.
		cleanUp, cancel := context.WithTimeout(context.WithoutCancel(ctx), endServiceLimit)
		defer cancel()
		_, _ = b.processes.EndService(cleanUp, &sandboxv1.EndServiceRequest{Name: name})
	}
	return err
}

// RemoveService ends a service for good. One that is not there is fine; a sleeping sandbox is woken.
func (b *Sandbox) RemoveService(ctx context.Context, name string) error {
	err := b.changeServices(ctx, func(known []declaredService) []declaredService { return withoutService(known, name) })
	if err != nil {
		return err
	}
	_, err = b.processes.EndService(ctx, &sandboxv1.EndServiceRequest{Name: name})
	return callError(ctx, err)
}

func withoutService(known []declaredService, name string) []declaredService {
	return slices.DeleteFunc(known, func(one declaredService) bool { return one.Name == name })
}

// separatorEscape matches a line or paragraph separator that the encoder escaped, or another escape, so that a backslash which is itself
// escaped does not begin one.
var separatorEscape = regexp.MustCompile(`\\(?:u202[89]|.)`)

// formatServices writes the annotation as the other SDKs do, whose bytes in UTF-8 are bounded: only what JSON demands is escaped, whereas
// json.Marshal turns each <, > and & into six bytes, and each U+2028 and U+2029, too.
func formatServices(services []declaredService) (text string, isWithinBounds bool, err error) {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(services); err != nil {
		return "", false, err
	}
	line := bytes.TrimSuffix(encoded.Bytes(), []byte("\n"))
	text = separatorEscape.ReplaceAllStringFunc(string(line), func(escape string) string {
		switch escape {
		case `\u2028`:
			return "\u2028"
		case `\u2029`:
			return "\u2029"
		}
		return escape
	})
	return text, len(services) <= servicesMax && len(text) <= servicesBytesMax, nil
}

// changeServices writes the services of this very sandbox anew.
func (b *Sandbox) changeServices(ctx context.Context, change func([]declaredService) []declaredService) error {
	for attempt := 1; ; attempt++ {
		found, err := b.object(ctx)
		if err != nil {
			return err
		}
		var known []declaredService
		// What cannot be read is replaced.
		_ = json.Unmarshal([]byte(found.Metadata.Annotations[servicesAnnotation]), &known)
		wanted := change(known)
		var text any
		if len(wanted) > 0 {
			formatted, isWithinBounds, err := formatServices(wanted)
			if err != nil {
				return wrapError(errorcode.InvalidArgument, err, "services")
			}
			if text = formatted; !isWithinBounds {
				return newError(errorcode.InvalidArgument, "sandbox %s/%s can have %d services of 8 KiB in all; remove one first", b.Namespace, b.Name, servicesMax)
			}
		}
		if _, isDeclared := found.Metadata.Annotations[servicesAnnotation]; text == nil && !isDeclared {
			return nil
		}
		metadata := map[string]any{"resourceVersion": found.Metadata.ResourceVersion, "annotations": map[string]any{servicesAnnotation: text}}
		_, err = b.kube.patch(ctx, sandboxes, b.Namespace, b.Name, map[string]any{"metadata": metadata})
		if err == nil || CodeOf(err) != errorcode.Conflict || attempt == serviceAttemptsMax {
			return err
		}
	}
}
