package sandbox

import (
	"context"
	"encoding/json"
	"time"
)

// limitConditions are the conditions of a sandbox that one of its limits ended; Error.Limit has their names.
var limitConditions = map[string]bool{"OOMKilled": true, "PidLimitReached": true, "Evicted": true}

const (
	// The node reports an end within a second, and the controller writes it into the Sandbox after that: five looks span 1.2 s.
	limitLooksMax = 5
	limitPause    = 300 * time.Millisecond
	// Times on the wire are whole seconds of another machine's clock.
	limitClockSlack = 5 * time.Second
)

// limitReached finds the limit that ended the sandbox since a moment; false where none did, or the API cannot be asked.
func (b *Sandbox) limitReached(ctx context.Context, since time.Time) (Condition, bool) {
	for look := range limitLooksMax {
		if look > 0 {
			select {
			case <-ctx.Done():
				return Condition{}, false
			case <-time.After(limitPause):
			}
		}
		found, err := b.kube.get(ctx, sandboxes, b.Namespace, b.Name)
		// The explanation of one failure is looked for: a second failure explains nothing.
		if err != nil || found.Metadata.UID != b.UID {
			return Condition{}, false
		}
		var status struct{ Conditions []Condition }
		if len(found.Status) > 0 {
			_ = json.Unmarshal(found.Status, &status)
		}
		for _, reached := range status.Conditions {
			if limitConditions[reached.Type] && reached.Status == "True" && !reached.LastTransitionTime.Add(limitClockSlack).Before(since) {
				return reached, true
			}
		}
	}
	return Condition{}, false
}
