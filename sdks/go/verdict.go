package sandbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agent-sandbox.dev/sdk/errorcode"
)

// verdict says whether waiting for an object is over: done, failed, or why not yet.
type verdict struct {
	done bool
	err  *Error
	why  string
}

func waiting(why string) verdict { return verdict{why: why} }

func failed(code errorcode.Code, format string, values ...any) verdict {
	return verdict{err: newError(code, format, values...)}
}

type condition struct {
	Type, Status, Reason, Message string
	ObservedGeneration            *int64
}

// conditionOf finds the condition of a type, if the controller has set it for the object as it is now.
func conditionOf(o *object, kind string) (condition, bool) {
	found, known := anyCondition(o, kind)
	// A condition about an older spec says nothing about the change that was just made.
	return found, known && !isOutdated(found, o)
}

var (
	claimEnds = []string{
		"TemplateNotFound", "WarmPoolNotFound", "EnvVarsInjectionRejected", "VolumeClaimTemplatesError", "InvalidConfiguration", "InvalidMetadata",
		"BindTimeout", "ClaimExpired", "SandboxExpired", "PodFailed", "PodSucceeded",
	}
	// Reasons that tell of the user's mistake; a first failed pull may be the network's and is left out.
	containerEnds = []string{
		"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
		"CrashLoopBackOff",
	}
)

const waitingForController = "waiting for the controller"

// judgeSandbox says whether a Sandbox can be talked to.
func judgeSandbox(o *object) verdict {
	if o == nil || o.Metadata.DeletionTimestamp != nil {
		return failed(errorcode.NotFound, "the sandbox was deleted meanwhile")
	}
	state := phaseOf(o)
	switch {
	case !state.IsObserved:
		return waiting(waitingForController)
	case state.Phase == "ready":
		return verdict{done: true}
	case state.IsTerminal:
		return failed(codeOfReason(state.Reason, errorcode.SandboxFailed), "sandbox %s/%s is not ready: %s", o.Metadata.Namespace, o.Metadata.Name, state.Message)
	}
	return waiting(state.Message)
}

func codeOfReason(reason string, fallback errorcode.Code) errorcode.Code {
	if code, known := errorcode.OfReason[reason]; known {
		return code
	}
	return fallback
}

// boundSandbox is the name of the Sandbox that a claim got, or empty.
func boundSandbox(o *object) string {
	var parsed struct{ Sandbox struct{ Name string } }
	if len(o.Status) == 0 || json.Unmarshal(o.Status, &parsed) != nil {
		return ""
	}
	return parsed.Sandbox.Name
}

// judgeClaim says whether a claim has its sandbox.
func judgeClaim(o *object) verdict {
	if o == nil || o.Metadata.DeletionTimestamp != nil {
		return failed(errorcode.NotFound, "the claim was deleted meanwhile")
	}
	ready, known := conditionOf(o, "Ready")
	switch {
	case !known:
		return waiting(waitingForController)
	case ready.Status == "True" && boundSandbox(o) != "":
		return verdict{done: true}
	case slices.Contains(claimEnds, ready.Reason):
		var spec struct{ WarmPoolRef struct{ Name string } }
		// What cannot be read is shown as absent.
		_ = json.Unmarshal(o.Spec, &spec)
		code := codeOfReason(ready.Reason, errorcode.ClaimFailed)
		return failed(code, "claim %s/%s on pool '%s' failed: %s", o.Metadata.Namespace, o.Metadata.Name, spec.WarmPoolRef.Name, ready.Message)
	}
	return waiting(ready.Message)
}

// judgeSuspended says whether a Sandbox is asleep.
func judgeSuspended(o *object) verdict {
	if o == nil {
		return failed(errorcode.NotFound, "the sandbox was deleted meanwhile")
	}
	suspended, known := conditionOf(o, "Suspended")
	switch {
	case !known:
		return waiting(waitingForController)
	case suspended.Status == "True":
		return verdict{done: true}
	case suspended.Reason == "SuspensionStrategyNotAvailable":
		return failed(errorcode.Unsupported, "%s", suspended.Message)
	case suspended.Reason == "SuspensionFailed":
		return failed(errorcode.SuspensionFailed, "%s", suspended.Message)
	}
	return waiting(suspended.Message)
}

func judgeGone(o *object) verdict {
	if o == nil {
		return verdict{done: true}
	}
	return waiting("it is being deleted")
}

type podStatus struct {
	Phase, Reason, Message string
	Conditions             []condition
	InitContainerStatuses  []containerStatus
	ContainerStatuses      []containerStatus
}

type containerStatus struct {
	Image string
	State struct {
		Waiting *struct{ Reason, Message string }
	}
	LastState struct {
		Terminated *struct {
			ExitCode int
			Message  string
		}
	}
}

// unboundVolumes is what a scheduler says while a new volume is being bound: it passes, wherever the Pod may run.
const unboundVolumes = "unbound immediate PersistentVolumeClaims"

// judgePod says whether a Pod shows why its Sandbox will not start; a Pod alone is never done.
func judgePod(o *object, isUnschedulableFinal bool) verdict {
	var parsed podStatus
	if o == nil || len(o.Status) == 0 || json.Unmarshal(o.Status, &parsed) != nil {
		return waiting("the pod is being made")
	}
	for _, container := range slices.Concat(parsed.InitContainerStatuses, parsed.ContainerStatuses) {
		pending := container.State.Waiting
		if pending == nil || pending.Reason == "" || pending.Reason == "PodInitializing" {
			continue
		}
		if slices.Contains(containerEnds, pending.Reason) {
			return container.failure(pending.Reason, firstOf(pending.Message, pending.Reason))
		}
		return waiting(container.Image + ": " + pending.Reason)
	}
	if parsed.Phase == "Failed" && parsed.Reason != "" {
		return failed(errorcode.SandboxFailed, "%s: %s", parsed.Reason, parsed.Message)
	}
	for _, found := range parsed.Conditions {
		if found.Type == "PodScheduled" && found.Reason == "Unschedulable" {
			why := "cannot be scheduled: " + found.Message
			if isUnschedulableFinal && !strings.Contains(found.Message, unboundVolumes) {
				return failed(errorcode.QuotaExceeded, "%s", why)
			}
			return waiting(why)
		}
	}
	return waiting("pod is " + firstOf(parsed.Phase, "being made"))
}

func (c *containerStatus) failure(reason, message string) verdict {
	if strings.Contains(reason, "Image") {
		return failed(errorcode.InvalidArgument, "image '%s' cannot be used: %s", c.Image, message)
	}
	if last := c.LastState.Terminated; last != nil {
		message += strings.TrimRight(fmt.Sprintf("; it exited with %d %s", last.ExitCode, last.Message), " ")
	}
	code := errorcode.SandboxFailed
	if reason == "CrashLoopBackOff" {
		code = errorcode.CrashLoop
	}
	return failed(code, "container cannot start: %s", message)
}
