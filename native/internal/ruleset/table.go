package ruleset

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
)

// Table remembers what this program has put in force, so that a change costs what it changes.
//
// Invariant: what it remembers is the kernel's table, or it remembers nothing. It starts with nothing and believes nothing it finds: the first rule
// set replaces the whole table, and so does the next one after any transaction whose outcome is in doubt.
//
// It is also the one place that knows whose connections are diverted and who is asleep: the holder of connections and the routes ask it.
type Table struct {
	// mu is held to change what Diverts and IsAsleep read; the rest is for one caller at a time.
	mu sync.RWMutex
	inForce
	// expected are addresses that a transaction under way, or one in doubt, diverts.
	expected map[string]bool
	// late are addresses that rules diverted until then.
	late map[string]time.Time
}

// What rules diverted before they changed arrives within the time that a client repeats the last part of its handshake.
const lateMax = time.Minute

// inForce is what a transaction left in the kernel.
type inForce struct {
	scope    Scope
	revision string
	entries  map[string]entry
	slots    map[int]string
	groups   map[string]map[string]bool
}

// Step is a planned transaction and what follows from it once it is in force.
type Step struct {
	Commands string
	// Held are addresses whose connections are diverted from here on, Released those whose are not any more, Gone those that no sandbox has now.
	Held, Released, Gone []netip.Addr
	// Asleep and Roused are addresses that lose and get a network of their own.
	Asleep, Roused []netip.Addr
	after          inForce
	touched        map[string]*entry
	groups         map[string]groupStep
}

// PlanAll plans the whole table anew; Check has passed.
func (t *Table) PlanAll(r RuleSet, s Scope) Step {
	step := Step{after: inForce{scope: s, revision: r.Revision, entries: map[string]entry{}, slots: map[int]string{}, groups: map[string]map[string]bool{}}}
	work := transaction{table: s.Table}
	for _, g := range r.Groups {
		if step.after.groups[g.ID] != nil {
			continue
		}
		plan := groupStep{added: slices.Sorted(maps.Keys(setOf(g.Addresses)))}
		work.group(g.ID, true, plan)
		step.after.commitGroup(g.ID, plan)
	}
	for _, e := range step.after.entriesOf(r.Endpoints, r.Sleeping) {
		work.move(nil, &e)
		step.after.put(e)
		before, isKnown := t.entries[e.address]
		step.note(known(before, isKnown), &e)
	}
	for address, before := range t.entries {
		if _, stays := step.after.entries[address]; !stays {
			step.note(&before, nil)
		}
	}
	step.Commands = renderSkeleton(r.GatewayPorts, s) + work.text()
	return step
}

// PlanChange plans a difference; Check has passed. It is refused where it builds on anything but what is in force.
func (t *Table) PlanChange(c Change) (Step, error) {
	if c.Base != t.revision {
		return Step{}, hosterr.New(hosterr.NotFound, "rules of revision %q are not in force: send all of them", c.Base)
	}
	step := Step{touched: map[string]*entry{}, groups: map[string]groupStep{}, after: inForce{revision: c.Revision}}
	for _, address := range c.Removed {
		step.touched[address] = nil
	}
	for _, e := range t.entriesOf(c.Endpoints, c.Sleeping) {
		step.touched[e.address] = &e
	}
	if err := t.checkSlots(step.touched); err != nil {
		return Step{}, err
	}
	work := transaction{table: t.scope.Table}
	t.planGroups(c, &step, &work)
	for _, address := range slices.Sorted(maps.Keys(step.touched)) {
		before, isKnown := t.entries[address]
		work.move(known(before, isKnown), step.touched[address])
		step.note(known(before, isKnown), step.touched[address])
	}
	step.Commands = work.text()
	return step, nil
}

// groupStep is what a change does to one group: who joins that was not in it, who leaves that was.
type groupStep struct {
	added, removed []string
	isGone         bool
}

func (t *Table) planGroups(c Change, step *Step, work *transaction) {
	for _, g := range c.Groups {
		var plan groupStep
		members, joining := t.groups[g.ID], setOf(g.Added)
		for _, address := range g.Removed {
			if members[address] && !joining[address] {
				plan.removed = append(plan.removed, address)
			}
		}
		for _, address := range slices.Sorted(maps.Keys(joining)) {
			if !members[address] {
				plan.added = append(plan.added, address)
			}
		}
		work.group(g.ID, members == nil, plan)
		step.groups[g.ID] = plan
	}
	for _, id := range c.RemovedGroups {
		if t.groups[id] != nil {
			work.goneSets = append(work.goneSets, groupSet(id))
			step.groups[id] = groupStep{isGone: true}
		}
	}
}

func (t *inForce) commitGroup(id string, plan groupStep) {
	if plan.isGone {
		delete(t.groups, id)
		return
	}
	if t.groups[id] == nil {
		t.groups[id] = map[string]bool{}
	}
	for _, address := range plan.removed {
		delete(t.groups[id], address)
	}
	for _, address := range plan.added {
		t.groups[id][address] = true
	}
}

// checkSlots refuses a change that would give one slot to two addresses.
func (t *Table) checkSlots(touched map[string]*entry) error {
	for address, e := range touched {
		if e == nil || !e.isAwake {
			continue
		}
		other, isTaken := t.slots[e.slot]
		if after, isTouched := touched[other]; isTaken && other != address && (!isTouched || (after != nil && after.isAwake && after.slot == e.slot)) {
			return hosterr.New(hosterr.InvalidArgument, "slot %d: %s and %s both have it", e.slot, other, address)
		}
	}
	return nil
}

// Expect is called before a step's transaction: a connection that it diverts may arrive before its end is known.
func (t *Table) Expect(step Step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.expected == nil {
		t.expected = map[string]bool{}
	}
	for _, address := range step.Held {
		t.expected[address.String()] = true
	}
}

// Diverts says whether connections to an address are diverted, or were until a moment ago: such a one may still be on its way.
func (t *Table) Diverts(address netip.Addr) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	text := address.String()
	since, isLate := t.late[text]
	return t.entries[text].isHeld || t.expected[text] || (isLate && time.Since(since) <= lateMax)
}

// IsAsleep says whether the sandbox that an address belongs to is asleep.
func (t *Table) IsAsleep(address netip.Addr) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e, isKnown := t.entries[address.String()]
	return isKnown && !e.isAwake
}

// Commit remembers a step whose transaction is in force.
func (t *Table) Commit(step Step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noteReleased(step)
	if step.touched == nil {
		t.inForce = step.after
		return
	}
	t.revision = step.after.revision
	for address := range step.touched {
		if before, isKnown := t.entries[address]; isKnown && before.isAwake && t.slots[before.slot] == address {
			delete(t.slots, before.slot)
		}
		delete(t.entries, address)
	}
	for _, e := range step.touched {
		if e != nil {
			t.put(*e)
		}
	}
	for id, plan := range step.groups {
		t.commitGroup(id, plan)
	}
}

// noteReleased keeps the moment for addresses that are not diverted any more; one that no sandbox has now is not waited for, because the next to have it
// is another sandbox. Preconditions: the table is locked, and the step's transaction is in force.
func (t *Table) noteReleased(step Step) {
	t.expected = nil
	if t.late == nil {
		t.late = map[string]time.Time{}
	}
	maps.DeleteFunc(t.late, func(_ string, since time.Time) bool { return time.Since(since) > lateMax })
	for _, address := range step.Released {
		t.late[address.String()] = time.Now()
	}
	for _, address := range slices.Concat(step.Held, step.Gone) {
		delete(t.late, address.String())
	}
}

// Doubt is called when it is not known what is in force: no change builds on it. Who is held stays known, for the next whole rule set to release.
func (t *Table) Doubt() { t.revision = "" }

// Sleeping are the addresses of who is asleep.
func (t *Table) Sleeping() []netip.Addr {
	var list []netip.Addr
	for _, e := range t.entries {
		if !e.isAwake {
			list = append(list, netip.MustParseAddr(e.address))
		}
	}
	return list
}

func (t *inForce) put(e entry) {
	t.entries[e.address] = e
	if e.isAwake {
		t.slots[e.slot] = e.address
	}
}

func (t *inForce) entriesOf(endpoints []Endpoint, sleeping []Sleeping) []entry {
	var list []entry
	for _, e := range endpoints {
		list = append(list, entry{address: e.Address, slot: e.Slot, hostLink: t.scope.HostLink(e.Slot), isAwake: true, isHeld: e.Held, ingress: e.Ingress, egress: e.Egress})
	}
	for _, s := range sleeping {
		list = append(list, entry{address: s.Address, isHeld: true, ingress: s.Ingress})
	}
	return list
}

// note writes down what a move of an address means for those who hold connections and routes.
func (s *Step) note(from, to *entry) {
	wasHeld, isHeld := from != nil && from.isHeld, to != nil && to.isHeld
	wasAsleep, isAsleep := from != nil && !from.isAwake, to != nil && !to.isAwake
	var address netip.Addr
	if from != nil {
		address = netip.MustParseAddr(from.address)
	} else if to != nil {
		address = netip.MustParseAddr(to.address)
	}
	switch {
	case isHeld && !wasHeld:
		s.Held = append(s.Held, address)
	case wasHeld && to == nil:
		s.Gone = append(s.Gone, address)
	case wasHeld && !isHeld:
		s.Released = append(s.Released, address)
	}
	switch {
	case isAsleep && !wasAsleep:
		s.Asleep = append(s.Asleep, address)
	case wasAsleep && !isAsleep:
		s.Roused = append(s.Roused, address)
	}
}

// group writes what becomes of one group.
func (t *transaction) group(id string, isMade bool, plan groupStep) {
	set := groupSet(id)
	if isMade {
		t.madeSets = append(t.madeSets, set)
	}
	for _, address := range plan.removed {
		t.removed.add(set, address)
	}
	for _, address := range plan.added {
		t.added.add(set, address)
	}
}

func known(e entry, isKnown bool) *entry {
	if !isKnown {
		return nil
	}
	return &e
}

func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, one := range list {
		set[one] = true
	}
	return set
}
