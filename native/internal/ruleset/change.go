package ruleset

import (
	"fmt"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/netslot"
)

// Change is the difference between two rule sets.
type Change struct {
	// Base is the revision that the change was made for, Revision what it leads to.
	Base     string `json:"base"`
	Revision string `json:"revision"`
	// Endpoints and Sleeping are whole, in place of what was said of their addresses; Removed are addresses nothing is said of any more.
	Endpoints     []Endpoint    `json:"endpoints"`
	Sleeping      []Sleeping    `json:"sleeping"`
	Removed       []string      `json:"removed"`
	Groups        []GroupChange `json:"groups"`
	RemovedGroups []string      `json:"removedGroups"`
}

// GroupChange is who joins and who leaves a group; one that is not there yet is made.
type GroupChange struct {
	ID      string   `json:"id"`
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
}

// Check refuses what RuleSet.Check refuses, as far as the change alone can tell.
func (c Change) Check() error {
	if c.Base == "" || c.Revision == "" {
		return hosterr.New(hosterr.InvalidArgument, "a change names the revision it is based on and its own")
	}
	if len(c.Removed) > endpointsMax || len(c.Groups) > groupsMax || len(c.RemovedGroups) > groupsMax {
		return hosterr.New(hosterr.InvalidArgument, "a change of more than %d addresses or %d groups", endpointsMax, groupsMax)
	}
	if err := (RuleSet{Endpoints: c.Endpoints, Sleeping: c.Sleeping}).Check(); err != nil {
		return err
	}
	for i, address := range c.Removed {
		if _, err := netslot.ParseAddress(fmt.Sprintf("removed[%d]", i), address); err != nil {
			return err
		}
	}
	for i, g := range c.Groups {
		if err := checkGroup(fmt.Sprintf("groups[%d]", i), g.ID, g.Added, g.Removed); err != nil {
			return err
		}
	}
	for i, id := range c.RemovedGroups {
		if err := checkGroup(fmt.Sprintf("removedGroups[%d]", i), id); err != nil {
			return err
		}
	}
	return nil
}
