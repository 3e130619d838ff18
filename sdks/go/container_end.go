package sandbox

import (
	"context"
	"encoding/json"
	"time"
)

// endKind is what is known of an end that is looked for.
type endKind int

const (
	// endLost: the connection broke, perhaps for another reason.
	endLost endKind = iota
	// endGone: a daemon answers that does not know the process, so that its container has ended.
	endGone
)

// containerEnd is an end of a sandbox's containers.
type containerEnd struct {
	// limit is what caused it, by the name of its condition; empty where none did.
	limit   string
	message string
}

// limitConditions are the conditions of a sandbox that one of its limits ended; Error.Limit has their names.
var limitConditions = map[string]bool{"OOMKilled": true, "PidLimitReached": true, "Evicted": true}

// endedCondition is there after any end of the containers.
const endedCondition = "ContainerEnded"

const (
	// The node reports an end within a second, and the controller writes it into the Sandbox after that: five looks span 1.2 s.
	endLooksMax = 5
	endPause    = 300 * time.Millisecond
	// An API server that does not answer within this explains nothing.
	endLookLimit = 2 * time.Second
)

// endClockSlack: times on the wire are whole seconds of another machine's clock. Where the container is known to have ended, clocks may differ;
// where it is not, an end before the process must not be taken for its own.
var endClockSlack = map[endKind]time.Duration{endGone: 5 * time.Second, endLost: time.Second}

// findEnd finds the end of the sandbox's containers since a moment; nil where there was none, or the API cannot be asked.
func (b *Sandbox) findEnd(ctx context.Context, since time.Time, kind endKind) *containerEnd {
	looks := 1
	if kind == endGone {
		looks = endLooksMax
	}
	for look := range looks {
		if look > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(endPause):
			}
		}
		conditions, known := b.conditions(ctx)
		// The explanation of one failure is looked for: a second failure explains nothing.
		if !known {
			return nil
		}
		if end := endSince(conditions, since.Add(-endClockSlack[kind])); end != nil {
			return end
		}
	}
	return nil
}

func (b *Sandbox) conditions(ctx context.Context) ([]Condition, bool) {
	ctx, cancel := context.WithTimeout(ctx, endLookLimit)
	defer cancel()
	found, err := b.kube.get(ctx, sandboxes, b.Namespace, b.Name)
	if err != nil || found.Metadata.UID != b.UID {
		return nil, false
	}
	var status struct{ Conditions []Condition }
	if len(found.Status) > 0 {
		_ = json.Unmarshal(found.Status, &status)
	}
	return status.Conditions, true
}

// endSince prefers a limit, which says more than the bare end that is written together with it.
func endSince(conditions []Condition, since time.Time) *containerEnd {
	var ended *containerEnd
	for _, condition := range conditions {
		if condition.Status != "True" || condition.LastTransitionTime.Before(since) {
			continue
		}
		if limitConditions[condition.Type] {
			return &containerEnd{limit: condition.Type, message: condition.Message}
		}
		if condition.Type == endedCondition {
			ended = &containerEnd{message: condition.Message}
		}
	}
	return ended
}
