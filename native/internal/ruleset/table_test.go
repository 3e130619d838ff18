package ruleset

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// manyPods are as many sandboxes as said that one policy lets talk to each other.
func manyPods(count int) RuleSet {
	r := RuleSet{Revision: "0", GatewayPorts: []Port{{Protocol: "UDP", Port: 53}}, Groups: []Group{{ID: "ab"}}}
	for i := range count {
		r.Endpoints = append(r.Endpoints, podNumber(i))
		r.Groups[0].Addresses = append(r.Groups[0].Addresses, podNumber(i).Address)
	}
	return r
}

func podNumber(i int) Endpoint {
	groups := []string{"ab"}
	public := []Block{{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"}}}
	return Endpoint{Slot: i + 1, Address: fmt.Sprintf("10.200.%d.%d", i/200+1, i%200+1), Ingress: []Allow{{Groups: &groups}}, Egress: []Allow{{Blocks: &public}, {Groups: &groups}}}
}

func joining(i int, base, revision string) Change {
	pod := podNumber(i)
	return Change{Base: base, Revision: revision, Endpoints: []Endpoint{pod}, Groups: []GroupChange{{ID: "ab", Added: []string{pod.Address}}}}
}

func TestChangeCostsWhatItChanges(t *testing.T) {
	var sizes []int
	for _, count := range []int{10, 100, 300} {
		var table Table
		all := table.PlanAll(manyPods(count), scope())
		table.Commit(all)
		one, err := table.PlanChange(joining(count, "0", "1"))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d pods: all of it %d bytes in %d commands, one more %d bytes in %d", count, len(all.Commands), strings.Count(all.Commands, "\n"), len(one.Commands), strings.Count(one.Commands, "\n"))
		sizes = append(sizes, len(one.Commands))
	}
	if slices.Max(sizes)-slices.Min(sizes) > 50 || slices.Max(sizes) > 2000 {
		t.Errorf("one more pod costs %v bytes among 10, 100 and 300", sizes)
	}
}

func TestChangeNamesWhatMovesAndNothingElse(t *testing.T) {
	var table Table
	table.Commit(table.PlanAll(manyPods(3), scope()))
	apply := func(c Change) Step {
		t.Helper()
		step, err := table.PlanChange(c)
		if err != nil {
			t.Fatal(err)
		}
		table.Commit(step)
		return step
	}
	pod := podNumber(1)
	address := []netip.Addr{netip.MustParseAddr(pod.Address)}
	asleep := apply(Change{Base: "0", Revision: "1", Sleeping: []Sleeping{{Address: pod.Address, Ingress: pod.Ingress}}})
	want := strings.Join([]string{
		`delete element inet as_abcdef egress { 10.200.1.2 : jump out_10_200_1_2 }`,
		`delete element inet as_abcdef sources { "asabcdefh0002" . 10.200.1.2 }`,
		`add element inet as_abcdef held { 10.200.1.2 }`,
		`add element inet as_abcdef sleeping { 10.200.1.2 }`,
		`flush chain inet as_abcdef out_10_200_1_2`,
		`delete chain inet as_abcdef out_10_200_1_2`, ""}, "\n")
	if asleep.Commands != want || !slices.Equal(asleep.Held, address) || !slices.Equal(asleep.Asleep, address) {
		t.Errorf("falling asleep: %+v", asleep)
	}
	waking := pod
	waking.Held = true
	if step := apply(Change{Base: "1", Revision: "2", Endpoints: []Endpoint{waking}}); len(step.Held)+len(step.Released)+len(step.Gone) != 0 || !slices.Equal(step.Roused, address) {
		t.Errorf("waking: %+v", step)
	}
	awake := apply(Change{Base: "2", Revision: "3", Endpoints: []Endpoint{pod}})
	if awake.Commands != "delete element inet as_abcdef held { 10.200.1.2 }\n" || !slices.Equal(awake.Released, address) {
		t.Errorf("awake: %+v", awake)
	}
	if same := apply(Change{Base: "3", Revision: "4", Endpoints: []Endpoint{pod}}); same.Commands != "" {
		t.Errorf("what is there was written again: %q", same.Commands)
	}
}

func TestChangeOfAnotherRevisionOrOfATakenSlotIsRefused(t *testing.T) {
	var table Table
	if _, err := table.PlanChange(joining(1, "0", "1")); !hosterr.Is(err, hosterr.NotFound) {
		t.Errorf("before any rule set: %v", err)
	}
	table.Commit(table.PlanAll(manyPods(3), scope()))
	if _, err := table.PlanChange(joining(3, "9", "1")); !hosterr.Is(err, hosterr.NotFound) {
		t.Errorf("another revision: %v", err)
	}
	taken := joining(3, "0", "1")
	taken.Endpoints[0].Slot = 1
	if _, err := table.PlanChange(taken); !hosterr.Is(err, hosterr.InvalidArgument) {
		t.Errorf("a slot that another has: %v", err)
	}
	taken.Removed = []string{podNumber(0).Address}
	if _, err := table.PlanChange(taken); err != nil {
		t.Errorf("a slot that is given up: %v", err)
	}
	table.Doubt()
	if _, err := table.PlanChange(joining(3, "0", "1")); !hosterr.Is(err, hosterr.NotFound) {
		t.Errorf("in doubt: %v", err)
	}
}

// inOwnNetwork runs the rest of a test in a network namespace of its own; its thread ends with the test and takes the namespace along.
func inOwnNetwork(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("rules are tested as root: run the tests with sudo")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

// listing is the kernel's table without what depends on the order in which it came about.
func listing(t *testing.T) string {
	t.Helper()
	output, err := exec.Command("/usr/sbin/nft", "-n", "list", "table", "inet", scope().Table).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	text := regexp.MustCompile(`(?s)elements = \{(.*?)\}`).ReplaceAllStringFunc(string(output), func(found string) string {
		parts := strings.Split(strings.Trim(strings.TrimPrefix(found, "elements ="), " {}"), ",")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		slices.Sort(parts)
		return "elements = {" + strings.Join(parts, ",") + "}"
	})
	blocks := strings.Split(text, "\n\n")
	for i, block := range blocks {
		blocks[i] = strings.Trim(strings.TrimSuffix(strings.TrimSpace(block), "\n}"), "\t\n ")
		blocks[i] = strings.TrimPrefix(blocks[i], "table inet "+scope().Table+" {\n\t")
	}
	slices.Sort(blocks)
	return strings.Join(blocks, "\n")
}

// world is a rule set that chance changes.
type world struct {
	random   *rand.Rand
	revision int
	pods     map[int]Endpoint
	asleep   map[int]bool
	groups   map[string]map[string]bool
}

// allows name groups that exist, ranges and ports.
func (w *world) allows() []Allow {
	var list []Allow
	for range w.random.IntN(3) {
		var one Allow
		if w.random.IntN(2) == 0 {
			one.Groups = &[]string{"aa", "bb", "cc"}
		}
		if w.random.IntN(2) == 0 {
			one.Blocks = &[]Block{{CIDR: fmt.Sprintf("10.%d.0.0/16", w.random.IntN(3))}}
		}
		if w.random.IntN(2) == 0 {
			one.Ports = &[]Port{{Protocol: "TCP", Port: 80 + w.random.IntN(3)}}
		}
		list = append(list, one)
	}
	return list
}

// turn changes up to three sandboxes and as many members of groups.
func (w *world) turn() Change {
	c := Change{Base: fmt.Sprint(w.revision), Revision: fmt.Sprint(w.revision + 1)}
	w.revision++
	touched := map[int]bool{}
	for range 1 + w.random.IntN(3) {
		i := w.random.IntN(12)
		if touched[i] {
			continue
		}
		touched[i] = true
		e := podNumber(i)
		e.Ingress, e.Egress, e.Held = w.allows(), w.allows(), w.random.IntN(3) == 0
		delete(w.asleep, i)
		switch _, isThere := w.pods[i]; {
		case isThere && w.random.IntN(3) == 0:
			delete(w.pods, i)
			c.Removed = append(c.Removed, e.Address)
		case w.random.IntN(3) == 0:
			w.pods[i], w.asleep[i] = e, true
			c.Sleeping = append(c.Sleeping, Sleeping{Address: e.Address, Ingress: e.Ingress})
		default:
			w.pods[i] = e
			c.Endpoints = append(c.Endpoints, e)
		}
	}
	for _, id := range []string{"aa", "bb", "cc"} {
		g, member := GroupChange{ID: id}, podNumber(w.random.IntN(12)).Address
		if w.groups[id][member] {
			delete(w.groups[id], member)
			g.Removed = []string{member}
		} else {
			w.groups[id][member] = true
			g.Added = []string{member}
		}
		c.Groups = append(c.Groups, g)
	}
	return c
}

func (w *world) all() RuleSet {
	r := RuleSet{Revision: fmt.Sprint(w.revision), GatewayPorts: []Port{{Protocol: "UDP", Port: 53}}}
	for i, e := range w.pods {
		if w.asleep[i] {
			r.Sleeping = append(r.Sleeping, Sleeping{Address: e.Address, Ingress: e.Ingress})
		} else {
			r.Endpoints = append(r.Endpoints, e)
		}
	}
	for id, members := range w.groups {
		g := Group{ID: id}
		for member := range members {
			g.Addresses = append(g.Addresses, member)
		}
		r.Groups = append(r.Groups, g)
	}
	return r
}

func TestChangesLeadToTheTableOfAWholeRuleSet(t *testing.T) {
	inOwnNetwork(t)
	for seed := range uint64(6) {
		w := &world{random: rand.New(rand.NewPCG(seed, 1)), pods: map[int]Endpoint{}, asleep: map[int]bool{}, groups: map[string]map[string]bool{"aa": {}, "bb": {}, "cc": {}}}
		var table Table
		commit := func(step Step) {
			t.Helper()
			if step.Commands != "" {
				if err := Run(t.Context(), step.Commands); err != nil {
					t.Fatalf("seed %d: %v\n%s", seed, err, step.Commands)
				}
			}
			table.Commit(step)
		}
		commit(table.PlanAll(w.all(), scope()))
		for range 12 {
			step, err := table.PlanChange(w.turn())
			if err != nil {
				t.Fatal(err)
			}
			commit(step)
		}
		changed := listing(t)
		commit((&Table{}).PlanAll(w.all(), scope()))
		if whole := listing(t); changed != whole {
			t.Fatalf("seed %d: after changes\n%s\nas a whole\n%s", seed, changed, whole)
		}
	}
}

func TestAFailedChangeLeavesTheTableAsItWas(t *testing.T) {
	inOwnNetwork(t)
	var table Table
	all := table.PlanAll(manyPods(3), scope())
	if err := Run(t.Context(), all.Commands); err != nil {
		t.Fatal(err)
	}
	table.Commit(all)
	before := listing(t)
	c := joining(3, "0", "1")
	c.Endpoints[0].Ingress = []Allow{{Groups: &[]string{"dd"}}}
	step, err := table.PlanChange(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), step.Commands); !hosterr.Is(err, hosterr.RulesRejected) {
		t.Errorf("a rule about a group that is not there: %v", err)
	}
	if after := listing(t); after != before {
		t.Errorf("half a change is in force:\n%s", after)
	}
}

func BenchmarkOneMorePod(b *testing.B) {
	for _, count := range []int{10, 100, 300} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			runtime.LockOSThread()
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				b.Fatal(err)
			}
			var table Table
			run := func(step Step) time.Duration {
				start := time.Now()
				if err := Run(b.Context(), step.Commands); err != nil {
					b.Fatal(err)
				}
				table.Commit(step)
				return time.Since(start)
			}
			var whole, change []time.Duration
			for i := range 15 {
				whole = append(whole, run(table.PlanAll(manyPods(count), scope())))
				step, err := table.PlanChange(joining(count+i, "0", "1"))
				if err != nil {
					b.Fatal(err)
				}
				change = append(change, run(step))
			}
			slices.Sort(whole)
			slices.Sort(change)
			b.ReportMetric(float64(whole[7].Microseconds()), "us/whole")
			b.ReportMetric(float64(change[7].Microseconds()), "us/change")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func TestTheTableKnowsWhoIsHeldAndWhoSleeps(t *testing.T) {
	var table Table
	address := netip.MustParseAddr("10.200.0.2")
	is := func(what string, held, asleep bool) {
		t.Helper()
		if table.Diverts(address) != held || table.IsAsleep(address) != asleep {
			t.Errorf("%s: diverted %t, asleep %t", what, table.Diverts(address), table.IsAsleep(address))
		}
	}
	change := func(c Change) Step {
		t.Helper()
		c.Base, c.Revision = table.revision, table.revision+"+"
		step, err := table.PlanChange(c)
		if err != nil {
			t.Fatal(err)
		}
		return step
	}
	is("before any rules", false, false)
	asleep := table.PlanAll(RuleSet{Revision: "1", Sleeping: []Sleeping{{Address: address.String()}}}, scope())
	table.Expect(asleep)
	is("while the first rules are on their way", true, false)
	table.Commit(asleep)
	is("asleep", true, true)
	table.Commit(change(Change{Endpoints: []Endpoint{{Address: address.String(), Slot: 1, Held: true}}}))
	is("awake and not ready", true, false)
	table.Commit(change(Change{Endpoints: []Endpoint{{Address: address.String(), Slot: 1}}}))
	is("awake, a moment ago diverted", true, false)
	table.late[address.String()] = time.Now().Add(-2 * lateMax)
	is("long after the rules changed", false, false)
	held := change(Change{Endpoints: []Endpoint{{Address: address.String(), Slot: 1, Held: true}}})
	table.Expect(held)
	table.Doubt()
	is("in doubt whether it is diverted", true, false)
	table.Commit(table.PlanAll(RuleSet{Revision: "9"}, scope()))
	is("gone: the next to have it is another sandbox", false, false)
}
