package ruleset

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"agent-sandbox.dev/native/internal/hosterr"
)

func scope() Scope {
	return Scope{
		Table: "as_abcdef", LinkPrefix: "asabcdefh", HostLink: func(slot int) string { return fmt.Sprintf("asabcdefh%04d", slot) }, GatewayLink: "asabcdefgw",
		Gateway: netip.MustParseAddr("10.200.0.1"), CIDR: netip.MustParsePrefix("10.200.0.0/16"), Dialers: []uint32{990, 0, 991}, NodeUID: 990, HoldPort: 33433,
	}
}

func rendered(r RuleSet) string { return (&Table{}).PlanAll(r, scope()).Commands }

func TestCheckRefusesWhatIsNotANumberOrARange(t *testing.T) {
	endpoint := func(change func(*Endpoint)) RuleSet {
		e := Endpoint{Slot: 1, Address: "10.200.0.2"}
		change(&e)
		return RuleSet{Endpoints: []Endpoint{e}}
	}
	blocks := func(b ...Block) []Allow { return []Allow{{Blocks: &b}} }
	ports := func(p ...Port) []Allow { return []Allow{{Ports: &p}} }
	cases := map[string]RuleSet{
		"address":         endpoint(func(e *Endpoint) { e.Address = "10.200.0.2 accept" }),
		"ipv6":            endpoint(func(e *Endpoint) { e.Address = "fe80::1" }),
		"slot":            endpoint(func(e *Endpoint) { e.Slot = 70000 }),
		"cidr":            endpoint(func(e *Endpoint) { e.Egress = blocks(Block{CIDR: "0.0.0.0/0; flush ruleset"}) }),
		"host bits":       endpoint(func(e *Endpoint) { e.Egress = blocks(Block{CIDR: "10.0.0.1/8"}) }),
		"except outside":  endpoint(func(e *Endpoint) { e.Egress = blocks(Block{CIDR: "10.0.0.0/8", Except: []string{"11.0.0.0/16"}}) }),
		"protocol":        endpoint(func(e *Endpoint) { e.Ingress = ports(Port{Protocol: "ICMP"}) }),
		"port":            endpoint(func(e *Endpoint) { e.Ingress = ports(Port{Protocol: "TCP", Port: 65536}) }),
		"range backwards": endpoint(func(e *Endpoint) { e.Ingress = ports(Port{Protocol: "TCP", Port: 9, EndPort: 8}) }),
		"twice":           {Endpoints: []Endpoint{{Slot: 1, Address: "10.200.0.2"}, {Slot: 2, Address: "10.200.0.2"}}},
		"slot twice":      {Endpoints: []Endpoint{{Slot: 1, Address: "10.200.0.2"}, {Slot: 1, Address: "10.200.0.3"}}},
		"group":           {Groups: []Group{{ID: "ab; flush ruleset"}}},
		"group's address": {Groups: []Group{{ID: "ab", Addresses: []string{"10.200.0.2 }"}}}},
		"group in a rule": endpoint(func(e *Endpoint) { e.Ingress = []Allow{{Groups: &[]string{"../x"}}} }),
		"asleep and not":  {Endpoints: []Endpoint{{Slot: 1, Address: "10.200.0.2"}}, Sleeping: []Sleeping{{Address: "10.200.0.2"}}},
	}
	for name, r := range cases {
		if err := r.Check(); !hosterr.Is(err, hosterr.InvalidArgument) {
			t.Errorf("%s: got %v, want invalid-argument", name, err)
		}
	}
}

func TestRenderAnEmptyListMatchesNothingAndAnAbsentOneEverything(t *testing.T) {
	none := []Block{}
	text := rendered(RuleSet{Endpoints: []Endpoint{{Slot: 1, Address: "10.200.0.2", Ingress: []Allow{{Blocks: &none}}, Egress: []Allow{{}}}}})
	if strings.Contains(text, "add rule inet as_abcdef in_10_200_0_2 ") {
		t.Errorf("an empty list allowed something:\n%s", text)
	}
	if !strings.Contains(text, "add rule inet as_abcdef out_10_200_0_2 meta mark set meta mark | 0x00010000 return\n") {
		t.Errorf("an absent list did not allow everything:\n%s", text)
	}
}

func TestRenderExceptionsThatOverlapAreJoined(t *testing.T) {
	blocks := []Block{{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/8", "192.168.0.0/16"}}}
	ports := []Port{{Protocol: "UDP", Port: 53}, {Protocol: "TCP", Port: 8000, EndPort: 8100}}
	lines := allowLines("daddr", Allow{Blocks: &blocks, Ports: &ports})
	want := []string{
		"ip daddr 0.0.0.0/0 ip daddr != { 10.0.0.0/8, 192.168.0.0/16 } udp dport 53 ",
		"ip daddr 0.0.0.0/0 ip daddr != { 10.0.0.0/8, 192.168.0.0/16 } tcp dport 8000-8100 ",
	}
	if strings.Join(lines, "|") != strings.Join(want, "|") {
		t.Errorf("got %q", lines)
	}
}

func TestRenderPoliciesOfSleepingSandboxesAreAskedBeforeTheDiversion(t *testing.T) {
	text := rendered(RuleSet{Sleeping: []Sleeping{{Address: "10.200.0.3", Ingress: []Allow{{Ports: &[]Port{{Protocol: "TCP", Port: 8000}}}}}}})
	// Priority mangle comes before dstnat: the rules see the address and the port that the sender asked for.
	want := "chain wake {\n\t\ttype filter hook prerouting priority mangle; policy accept;"
	if !strings.Contains(text, want) || !strings.Contains(text, "jump leave\n\t\tgoto enter\n") {
		t.Errorf("no test of both sides ahead of the diversion:\n%s", text)
	}
	if !strings.Contains(text, "tcp dport 33433 ct status dnat ct original ip daddr @held accept") {
		t.Errorf("a diverted packet that passed the tests is not accepted:\n%s", text)
	}
}

func TestRenderOfTheHostsUsersOnlyRootAndTheDialersReachSandboxes(t *testing.T) {
	text := rendered(RuleSet{})
	if !strings.Contains(text, "meta skuid { 0, 990, 991 } accept\n\t\tct state established,related accept\n\t\treject") {
		t.Errorf("the dialers are not each once in the set:\n%s", text)
	}
}

func TestRenderPacesDatagramsToTheGatewayBySource(t *testing.T) {
	text := rendered(RuleSet{})
	guard := text[strings.Index(text, "chain guard"):strings.Index(text, "chain forward")]
	const pace = "ip daddr 10.200.0.1 meta l4proto udp update @asking { ip saddr limit rate over 1000/second burst 1000 packets } drop"
	if !strings.Contains(guard, pace) || strings.Index(guard, pace) < strings.Index(guard, "@sources drop") {
		t.Errorf("datagrams are not paced behind the test of their source:\n%s", guard)
	}
}
