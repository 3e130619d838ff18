package ruleset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Scope is what a table is made for.
type Scope struct {
	Table       string
	LinkPrefix  string
	HostLink    func(slot int) string
	GatewayLink string
	Gateway     netip.Addr
	CIDR        netip.Prefix
	// Dialers are the users of the host besides root that may open connections to sandboxes: those of node and router.
	Dialers []uint32
	// NodeUID is the one of them that reaches sandboxes which are not ready yet: it probes them.
	NodeUID uint32
	// HoldPort is the port of the gateway where connections are held.
	HoldPort int
}

// dialers is root and the dialers as elements of a set, each once.
func (s Scope) dialers() string {
	uids := append([]uint32{0}, s.Dialers...)
	slices.Sort(uids)
	words := make([]string, 0, len(uids))
	for _, uid := range slices.Compact(uids) {
		words = append(words, fmt.Sprint(uid))
	}
	return strings.Join(words, ", ")
}

// Never reachable from a sandbox, whatever a rule says: this network, loopback, link-local (metadata services), multicast, reserved, broadcast.
const neverReachable = "0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/3"

// Datagrams that one sandbox may send to the gateway, which answers DNS there: what comes faster would take the time, and the room in the
// queue of one socket, in which all sandboxes are answered.
const datagramsPerSecond = 1000

// renderSkeleton writes the table without anybody in it, in place of the one that is there. All names are ours, all values are parsed numbers and
// ranges: no text of a caller reaches it.
func renderSkeleton(gatewayPorts []Port, s Scope) string {
	var b strings.Builder
	// Declaring before deleting makes the deletion succeed also the first time; all of it is one transaction.
	fmt.Fprintf(&b, "table inet %s\ndelete table inet %s\ntable inet %s {\n", s.Table, s.Table, s.Table)
	for _, set := range fixedSets {
		fmt.Fprintf(&b, "\t%s %s {\n\t\ttype %s\n\t}\n", set.kind, set.name, set.typeOf)
	}
	b.WriteString("\tset asking {\n\t\ttype ipv4_addr\n\t\tsize 65535\n\t\tflags dynamic,timeout\n\t\ttimeout 1m\n\t}\n")
	renderAntiSpoof(&b, s)
	renderForward(&b, s)
	renderWake(&b, s)
	renderHost(&b, gatewayPorts, s)
	renderNat(&b, s)
	b.WriteString("}\n")
	return b.String()
}

// fixedSets are who is there: chains ask them, so that who comes and goes changes elements and no rule.
var fixedSets = []struct{ kind, name, typeOf string }{
	{"set", setSources, "ifname . ipv4_addr"},
	// Those whose callers from other sandboxes wait, and of them those who have no network at all.
	{"set", setHeld, "ipv4_addr"},
	{"set", setSleeping, "ipv4_addr"},
	{"map", mapIngress, "ipv4_addr : verdict"},
	{"map", mapEgress, "ipv4_addr : verdict"},
}

const (
	setSources  = "sources"
	setHeld     = "held"
	setSleeping = "sleeping"
	mapIngress  = "ingress"
	mapEgress   = "egress"
)

// A packet from a slot must carry the slot's own address; before connection tracking, so that a spoofed one leaves no trace.
func renderAntiSpoof(b *strings.Builder, s Scope) {
	fmt.Fprintf(b, `	chain guard {
		type filter hook prerouting priority raw; policy accept;
		iifname != "%s*" accept
		meta nfproto != ipv4 drop
		iifname . ip saddr != @sources drop
		fib daddr type { broadcast, multicast, anycast } drop
		ip daddr %s meta l4proto udp update @asking { ip saddr limit rate over %d/second burst %d packets } drop
	}
`, s.LinkPrefix, s.Gateway, datagramsPerSecond, datagramsPerSecond)
}

// A packet that is forwarded from or to a sandbox passes both tests: the sender's egress and the receiver's ingress.
func renderForward(b *strings.Builder, s Scope) {
	fmt.Fprintf(b, `	chain forward {
		type filter hook forward priority filter; policy accept;
		iifname "%[1]s*" jump sandbox
		oifname "%[1]s*" jump sandbox
	}
	chain sandbox {
		meta nfproto != ipv4 drop
		ct state established,related accept
		ct state invalid drop
		ip daddr { %[2]s } drop
		iifname != "%[1]s*" drop
		jump leave
		oifname "%[1]s*" goto enter
		ip daddr %[3]s drop
		accept
	}
	chain leave {
		meta mark set meta mark & 0xfffeffff
		ip saddr vmap @egress
		meta mark & 0x00010000 == 0 drop
		meta mark set meta mark & 0xfffeffff
	}
	chain enter {
		meta mark set meta mark & 0xfffeffff
		ip daddr vmap @ingress
		meta mark & 0x00010000 == 0 drop
		meta mark set meta mark & 0xfffeffff
		accept
	}
`, s.LinkPrefix, neverReachable, s.CIDR)
}

// A packet for a sandbox that is asleep or not ready yet passes the same two tests before it is diverted: behind that, it carries another address and port.
func renderWake(b *strings.Builder, s Scope) {
	fmt.Fprintf(b, `	chain wake {
		type filter hook prerouting priority mangle; policy accept;
		iifname != "%s*" accept
		ip daddr != @held accept
		ct state established,related accept
		jump leave
		goto enter
	}
`, s.LinkPrefix)
}

// The host's own end: sandboxes reach the gateway's open ports and held connections, nothing else; of the host's users only root, node and router reach sandboxes.
func renderHost(b *strings.Builder, gatewayPorts []Port, s Scope) {
	fmt.Fprintf(b, "\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n\t\tiifname != \"%s*\" accept\n\t\tmeta nfproto != ipv4 drop\n\t\tct state established,related accept\n", s.LinkPrefix)
	for _, p := range gatewayPorts {
		fmt.Fprintf(b, "\t\tip daddr %s %s accept\n", s.Gateway, portMatch(p))
	}
	fmt.Fprintf(b, "\t\tip daddr %s tcp dport %d ct status dnat ct original ip daddr @held accept\n", s.Gateway, s.HoldPort)
	b.WriteString("\t\tdrop\n\t}\n")
	fmt.Fprintf(b, `	chain output {
		type filter hook output priority filter; policy accept;
		ip daddr @sleeping meta skuid { %[2]s } accept
		ip daddr @sleeping reject with icmp admin-prohibited
		oifname != "%[1]s*" accept
		meta nfproto != ipv4 drop
		meta skuid { %[2]s } accept
		ct state established,related accept
		reject with icmp admin-prohibited
	}
`, s.LinkPrefix, s.dialers())
}

// What is diverted: TCP from sandboxes to addresses that are held, and the host's own to addresses of sandboxes that sleep. The engine itself must reach a sandbox that is not
// ready yet, which it is about to probe; root, which is an operator at a shell, waits with the others.
func renderNat(b *strings.Builder, s Scope) {
	fmt.Fprintf(b, `	chain divert {
		type nat hook prerouting priority dstnat; policy accept;
		iifname "%[1]s*" ip daddr @held meta l4proto tcp dnat ip to %[2]s:%[3]d
	}
	chain divert_local {
		type nat hook output priority -100; policy accept;
		ip daddr @sleeping meta l4proto tcp meta skuid { %[4]s } dnat ip to %[2]s:%[3]d
`, s.LinkPrefix, s.Gateway, s.HoldPort, s.dialers())
	if s.NodeUID != 0 {
		fmt.Fprintf(b, "\t\tip daddr @held meta l4proto tcp meta skuid 0 dnat ip to %s:%d\n", s.Gateway, s.HoldPort)
	}
	fmt.Fprintf(b, `	}
	chain departing {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr %s oifname != "%s*" oifname != "lo" oifname != "%s" masquerade
	}
`, s.CIDR, s.LinkPrefix, s.GatewayLink)
}

// chainLines mark what a list of rules allows. A mark instead of a verdict, because a packet between two sandboxes must pass two lists.
func chainLines(side string, allows []Allow) []string {
	var lines []string
	for _, allow := range allows {
		for _, match := range allowLines(side, allow) {
			lines = append(lines, match+"meta mark set meta mark | 0x00010000 return")
		}
	}
	return lines
}

func allowLines(side string, allow Allow) []string {
	var peers []string
	if allow.Blocks == nil && allow.Groups == nil {
		peers = []string{""}
	}
	if allow.Blocks != nil {
		for _, block := range *allow.Blocks {
			match := fmt.Sprintf("ip %s %s ", side, block.CIDR)
			if len(block.Except) > 0 {
				match += fmt.Sprintf("ip %s != { %s } ", side, strings.Join(withoutOverlap(block.Except), ", "))
			}
			peers = append(peers, match)
		}
	}
	if allow.Groups != nil {
		for _, id := range *allow.Groups {
			peers = append(peers, fmt.Sprintf("ip %s @%s ", side, groupSet(id)))
		}
	}
	ports := []string{""}
	if allow.Ports != nil {
		ports = nil
		for _, port := range *allow.Ports {
			ports = append(ports, portMatch(port)+" ")
		}
	}
	var lines []string
	for _, peer := range peers {
		for _, port := range ports {
			lines = append(lines, peer+port)
		}
	}
	return lines
}

// withoutOverlap drops ranges that lie in another of the list: nftables refuses a set whose intervals overlap.
func withoutOverlap(ranges []string) []string {
	var kept []string
	for i, text := range ranges {
		prefix := netip.MustParsePrefix(text)
		inside := false
		for j, other := range ranges {
			whole := netip.MustParsePrefix(other)
			if whole.Overlaps(prefix) && (whole.Bits() < prefix.Bits() || (whole.Bits() == prefix.Bits() && j < i)) {
				inside = true
			}
		}
		if !inside {
			kept = append(kept, text)
		}
	}
	return kept
}

func portMatch(p Port) string {
	protocol := strings.ToLower(p.Protocol)
	switch {
	case p.Port == 0:
		return "meta l4proto " + protocol
	case p.EndPort != 0:
		return fmt.Sprintf("%s dport %d-%d", protocol, p.Port, p.EndPort)
	}
	return fmt.Sprintf("%s dport %d", protocol, p.Port)
}
