package ruleset

import (
	"fmt"
	"slices"
	"strings"
)

// entry is an address that the table knows, awake or asleep.
type entry struct {
	address  string
	slot     int
	isAwake  bool
	isHeld   bool
	ingress  []Allow
	egress   []Allow
	hostLink string
}

type chain struct {
	name  string
	lines []string
}

type element struct{ set, text string }

func (e entry) chains() []chain {
	name := strings.ReplaceAll(e.address, ".", "_")
	chains := []chain{{"in_" + name, chainLines("saddr", e.ingress)}}
	if e.isAwake {
		chains = append(chains, chain{"out_" + name, chainLines("daddr", e.egress)})
	}
	return chains
}

func (e entry) elements() []element {
	name := strings.ReplaceAll(e.address, ".", "_")
	list := []element{{mapIngress, fmt.Sprintf("%s : jump in_%s", e.address, name)}}
	if e.isHeld {
		list = append(list, element{setHeld, e.address})
	}
	if !e.isAwake {
		return append(list, element{setSleeping, e.address})
	}
	return append(list,
		element{mapEgress, fmt.Sprintf("%s : jump out_%s", e.address, name)},
		element{setSources, fmt.Sprintf("%q . %s", e.hostLink, e.address)},
	)
}

func groupSet(id string) string { return "peers_" + id }

// transaction gathers what one change of the table needs, in an order in which nothing is named before it is there or after it is gone.
type transaction struct {
	table      string
	madeSets   []string
	chains     strings.Builder
	removed    elements
	added      elements
	goneChains []string
	goneSets   []string
}

// elements are the texts of elements by their set, in the order in which the sets came.
type elements struct {
	sets  []string
	texts map[string][]string
}

func (l *elements) add(set, text string) {
	if l.texts == nil {
		l.texts = map[string][]string{}
	}
	if l.texts[set] == nil {
		l.sets = append(l.sets, set)
	}
	l.texts[set] = append(l.texts[set], text)
}

func (l *elements) write(b *strings.Builder, verb, table string) {
	for _, set := range l.sets {
		fmt.Fprintf(b, "%s element inet %s %s { %s }\n", verb, table, set, strings.Join(l.texts[set], ", "))
	}
}

// move turns what the table says of an address into what it is to say; nil is nothing.
func (t *transaction) move(from, to *entry) {
	var before, after []chain
	var left, wanted []element
	if from != nil {
		before, left = from.chains(), from.elements()
	}
	if to != nil {
		after, wanted = to.chains(), to.elements()
	}
	for _, one := range after {
		i := slices.IndexFunc(before, func(other chain) bool { return other.name == one.name })
		if i < 0 || !slices.Equal(before[i].lines, one.lines) {
			t.writeChain(one, i >= 0)
		}
	}
	for _, one := range before {
		if !slices.ContainsFunc(after, func(other chain) bool { return other.name == one.name }) {
			t.goneChains = append(t.goneChains, one.name)
		}
	}
	for _, one := range left {
		if !slices.Contains(wanted, one) {
			t.removed.add(one.set, one.text)
		}
	}
	for _, one := range wanted {
		if !slices.Contains(left, one) {
			t.added.add(one.set, one.text)
		}
	}
}

func (t *transaction) writeChain(one chain, isThere bool) {
	verb := "add"
	if isThere {
		verb = "flush"
	}
	fmt.Fprintf(&t.chains, "%s chain inet %s %s\n", verb, t.table, one.name)
	for _, line := range one.lines {
		fmt.Fprintf(&t.chains, "add rule inet %s %s %s\n", t.table, one.name, line)
	}
}

// text is empty where nothing changes.
func (t *transaction) text() string {
	var b strings.Builder
	for _, set := range t.madeSets {
		fmt.Fprintf(&b, "add set inet %s %s { type ipv4_addr; }\n", t.table, set)
	}
	b.WriteString(t.chains.String())
	t.removed.write(&b, "delete", t.table)
	t.added.write(&b, "add", t.table)
	for _, name := range t.goneChains {
		fmt.Fprintf(&b, "flush chain inet %s %s\ndelete chain inet %s %s\n", t.table, name, t.table, name)
	}
	for _, set := range t.goneSets {
		fmt.Fprintf(&b, "delete set inet %s %s\n", t.table, set)
	}
	return b.String()
}
