package sandbox

import (
	"encoding/json"
	"slices"
	"time"
)

// phase says where a Sandbox is in its life and what follows from it; spec/sandbox-phase.golden.json is the table of the answers.
type phase struct {
	Phase, Reason, Message string
	// IsTerminal: nothing makes it ready but a change of its spec or, in a crash loop, of what its program misses.
	IsTerminal bool
	// WakesOnTraffic: it sleeps, or is about to, and traffic wakes it.
	WakesOnTraffic bool
	// IsHeld: it sleeps, and its owner does not let traffic wake it.
	IsHeld bool
	// IsObserved: its controller has seen the spec as it is.
	IsObserved bool
}

var (
	sleepingPhases = []string{"suspending", "suspended", "frozen", "hibernated", "archived"}
	terminalPhases = []string{"restore-failed", "crash-loop", "finished", "failed", "expired", "deleting"}
	// Reasons of the Ready condition that no waiting mends. A Pod that is replaced after a failure is never reported as failed.
	phaseOfEnd = map[string]string{
		"SandboxExpired": "expired", "PodSucceeded": "finished", "PodFailed": "failed", "InvalidConfiguration": "failed",
		"InvalidMetadata": "failed", "MultiplePods": "failed", "RestoreFailed": "restore-failed",
	}
	// How it sleeps, by the reason of the Suspended condition.
	phaseOfSleep = map[string]string{
		"PodTerminating": "suspending", "PodFreezing": "suspending", "PodHibernating": "suspending",
		// Its processes run on, and its node tries again.
		"SuspensionFailed": "suspending",
		"PodFrozen":        "frozen", "PodHibernated": "hibernated", "SandboxArchived": "archived",
	}
)

// phaseOf reads the phase from the object alone: no clock is asked, so that programs whose clocks differ agree.
func phaseOf(o *object) phase {
	ready, known := anyCondition(o, "Ready")
	isObserved := known && !isOutdated(ready, o)
	name := phaseName(o, ready, isObserved)
	isAsleep, wakes := slices.Contains(sleepingPhases, name), specOf(o).wakesOnTraffic()
	told := ready
	if name == "crash-loop" {
		told, _ = crashLoopOf(o)
	}
	return phase{
		Phase: name, Reason: told.Reason, Message: told.Message, IsTerminal: slices.Contains(terminalPhases, name),
		WakesOnTraffic: isAsleep && wakes, IsHeld: isAsleep && !wakes, IsObserved: isObserved,
	}
}

func phaseName(o *object, ready condition, isObserved bool) string {
	spec := specOf(o)
	wakes, wantsSleep := spec.wakesOnTraffic(), spec.OperatingMode == "Suspended"
	if o.Metadata.DeletionTimestamp != nil {
		return "deleting"
	}
	if ready.Status == "True" {
		// One that traffic does not wake serves until its Pod goes.
		if wakes && wantsSleep && !isCalledOff(o, ready) {
			return "suspending"
		}
		return "ready"
	}
	if end := phaseOfEnd[ready.Reason]; isObserved && end != "" && !(ready.Reason == "RestoreFailed" && isMemoryGivenUp(o)) {
		return end
	}
	// A suspension that its user has ended since is over; one that traffic ends is not before the controller says so.
	if wantsSleep || ready.Reason == "SandboxSuspended" && (isObserved || wakes) {
		suspended, _ := anyCondition(o, "Suspended")
		return firstOf(phaseOfSleep[suspended.Reason], "suspended")
	}
	if ready.Reason == "SandboxRestoring" {
		return "restoring"
	}
	if _, crashes := crashLoopOf(o); isObserved && crashes {
		return "crash-loop"
	}
	return "starting"
}

// coldStart is the annotation with the id of the sleep, or the uid of the snapshot, whose memory is given up.
const coldStart = "agent-sandbox.dev/cold-start"

// isMemoryGivenUp says whether its user lets it start without the memory that was saved; what its controller says of that memory is over.
func isMemoryGivenUp(o *object) bool {
	saved := savedMemory(o)
	return saved != "" && o.Metadata.Annotations[coldStart] == saved
}

// savedMemory names the memory that it has to wake from: the id of its sleep, or the uid of the snapshot that it has not started from yet. Empty where it
// runs from its own files.
func savedMemory(o *object) string {
	var status struct {
		Sleep        struct{ ID string }
		RestoredFrom struct{ UID, StartedAt string }
	}
	// What cannot be read is shown as absent.
	_ = json.Unmarshal(o.Status, &status)
	if status.Sleep.ID == "" && status.RestoredFrom.StartedAt == "" {
		return status.RestoredFrom.UID
	}
	return status.Sleep.ID
}

// crashLoopOf finds the condition that a container ends again and again, where it is so and is about the spec as it is.
func crashLoopOf(o *object) (condition, bool) {
	found, known := anyCondition(o, "CrashLoop")
	return found, known && found.Status == "True" && !isOutdated(found, o)
}

// isCalledOff says whether activity since a suspension has ended it. A Ready that is older than the suspension speaks of the Pod that it takes away.
func isCalledOff(o *object, ready condition) bool {
	suspendedAt, isStamped := timeOf(o, "agent-sandbox.dev/suspended-at")
	activeAt, isActive := timeOf(o, "agent-sandbox.dev/last-activity-at")
	return !isOutdated(ready, o) && isStamped && isActive && activeAt.After(suspendedAt)
}

// wakesOnTraffic: unset, traffic wakes what falls asleep by itself.
func (s *sandboxSpec) wakesOnTraffic() bool {
	return s.WakePolicy == "OnTraffic" || s.WakePolicy == "" && s.AutoSuspension != nil
}

func timeOf(o *object, annotation string) (time.Time, bool) {
	parsed, err := time.Parse(time.RFC3339Nano, o.Metadata.Annotations[annotation])
	return parsed, err == nil
}

func isOutdated(found condition, o *object) bool {
	return found.ObservedGeneration != nil && *found.ObservedGeneration < o.Metadata.Generation
}

// anyCondition finds the condition of a type, whatever spec it is about.
func anyCondition(o *object, kind string) (condition, bool) {
	var parsed struct{ Conditions []condition }
	if len(o.Status) > 0 && json.Unmarshal(o.Status, &parsed) != nil {
		return condition{}, false
	}
	at := slices.IndexFunc(parsed.Conditions, func(found condition) bool { return found.Type == kind })
	if at < 0 {
		return condition{}, false
	}
	return parsed.Conditions[at], true
}
