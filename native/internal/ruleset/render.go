package ruleset

import (
	"fmt"
	"net/netip"
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
	EngineUID   uint32
	// HoldPort is the port of the gateway where connections for sleeping addresses are held; 0 when nobody listens.
	HoldPort int
}

// Never reachable from a sandbox, whatever a rule says: this network, loopback, link-local (metadata services), multicast, reserved, broadcast.
const neverReachable = "0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/3"

// Datagrams that one sandbox may send to the gateway, which answers DNS there: what comes faster would take the time, and the room in the
// queue of one socket, in which all sandboxes are answered.
const datagramsPerSecond = 1000

// Render writes the table. All names are ours, all values are parsed numbers and ranges: no text of a caller reaches it.
func Render(r RuleSet, s Scope) string {
	var b strings.Builder
	// Declaring before deleting makes the deletion succeed also the first time; all of it is one transaction.
	fmt.Fprintf(&b, "table inet %s\ndelete table inet %s\ntable inet %s {\n", s.Table, s.Table, s.Table)
	renderSets(&b, r, s)
	renderAntiSpoof(&b, s)
	renderForward(&b, s)
	renderWake(&b, s)
	renderHost(&b, r, s)
	renderNat(&b, r, s)
	for _, e := range r.Endpoints {
		name := strings.ReplaceAll(e.Address, ".", "_")
		renderChain(&b, "in_"+name, "saddr", e.Ingress)
		renderChain(&b, "out_"+name, "daddr", e.Egress)
	}
	for _, e := range r.Sleeping {
		renderChain(&b, "in_"+strings.ReplaceAll(e.Address, ".", "_"), "saddr", e.Ingress)
	}
	b.WriteString("}\n")
	return b.String()
}

func renderSets(b *strings.Builder, r RuleSet, s Scope) {
	var sources, ingress, egress, sleeping []string
	for _, e := range r.Endpoints {
		name := strings.ReplaceAll(e.Address, ".", "_")
		sources = append(sources, fmt.Sprintf("%q . %s", s.HostLink(e.Slot), e.Address))
		ingress = append(ingress, fmt.Sprintf("%s : jump in_%s", e.Address, name))
		egress = append(egress, fmt.Sprintf("%s : jump out_%s", e.Address, name))
	}
	for _, e := range r.Sleeping {
		sleeping = append(sleeping, e.Address)
		ingress = append(ingress, fmt.Sprintf("%s : jump in_%s", e.Address, strings.ReplaceAll(e.Address, ".", "_")))
	}
	writeSet(b, "set", "sources", "ifname . ipv4_addr", sources)
	writeSet(b, "set", "sleeping", "ipv4_addr", sleeping)
	b.WriteString("\tset asking {\n\t\ttype ipv4_addr\n\t\tsize 65535\n\t\tflags dynamic,timeout\n\t\ttimeout 1m\n\t}\n")
	writeSet(b, "map", "ingress", "ipv4_addr : verdict", ingress)
	writeSet(b, "map", "egress", "ipv4_addr : verdict", egress)
}

func writeSet(b *strings.Builder, kind, name, typeOf string, elements []string) {
	fmt.Fprintf(b, "\t%s %s {\n\t\ttype %s\n", kind, name, typeOf)
	if len(elements) > 0 {
		fmt.Fprintf(b, "\t\telements = { %s }\n", strings.Join(elements, ", "))
	}
	b.WriteString("\t}\n")
}

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

// A packet for a sleeping sandbox passes the same two tests before it is diverted: behind that, it carries another address and port.
func renderWake(b *strings.Builder, s Scope) {
	fmt.Fprintf(b, `	chain wake {
		type filter hook prerouting priority mangle; policy accept;
		iifname != "%s*" accept
		ip daddr != @sleeping accept
		ct state established,related accept
		jump leave
		goto enter
	}
`, s.LinkPrefix)
}

// The host's own end: sandboxes reach the gateway's open ports and held connections, nothing else; of the host's users only root and the engine reach sandboxes.
func renderHost(b *strings.Builder, r RuleSet, s Scope) {
	fmt.Fprintf(b, "\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n\t\tiifname != \"%s*\" accept\n\t\tmeta nfproto != ipv4 drop\n\t\tct state established,related accept\n", s.LinkPrefix)
	for _, p := range r.GatewayPorts {
		fmt.Fprintf(b, "\t\tip daddr %s %s accept\n", s.Gateway, portMatch(p))
	}
	if s.HoldPort != 0 {
		fmt.Fprintf(b, "\t\tip daddr %s tcp dport %d ct status dnat ct original ip daddr @sleeping accept\n", s.Gateway, s.HoldPort)
	}
	b.WriteString("\t\tdrop\n\t}\n")
	fmt.Fprintf(b, `	chain output {
		type filter hook output priority filter; policy accept;
		ip daddr @sleeping meta skuid { 0, %[2]d } accept
		ip daddr @sleeping reject with icmp admin-prohibited
		oifname != "%[1]s*" accept
		meta nfproto != ipv4 drop
		meta skuid { 0, %[2]d } accept
		ct state established,related accept
		reject with icmp admin-prohibited
	}
`, s.LinkPrefix, s.EngineUID)
}

func renderNat(b *strings.Builder, r RuleSet, s Scope) {
	if s.HoldPort != 0 && len(r.Sleeping) > 0 {
		fmt.Fprintf(b, `	chain divert {
		type nat hook prerouting priority dstnat; policy accept;
		iifname "%s*" ip daddr @sleeping meta l4proto tcp dnat ip to %s:%d
	}
	chain divert_local {
		type nat hook output priority -100; policy accept;
		ip daddr @sleeping meta l4proto tcp meta skuid { 0, %d } dnat ip to %s:%d
	}
`, s.LinkPrefix, s.Gateway, s.HoldPort, s.EngineUID, s.Gateway, s.HoldPort)
	}
	fmt.Fprintf(b, `	chain departing {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr %s oifname != "%s*" oifname != "lo" oifname != "%s" masquerade
	}
`, s.CIDR, s.LinkPrefix, s.GatewayLink)
}

// renderChain marks what a list of rules allows. A mark instead of a verdict, because a packet between two sandboxes must pass two lists.
func renderChain(b *strings.Builder, name, side string, allows []Allow) {
	fmt.Fprintf(b, "\tchain %s {\n", name)
	for _, allow := range allows {
		for _, line := range allowLines(side, allow) {
			fmt.Fprintf(b, "\t\t%smeta mark set meta mark | 0x00010000 return\n", line)
		}
	}
	b.WriteString("\t}\n")
}

func allowLines(side string, allow Allow) []string {
	blocks := []string{""}
	if allow.Blocks != nil {
		blocks = nil
		for _, block := range *allow.Blocks {
			match := fmt.Sprintf("ip %s %s ", side, block.CIDR)
			if len(block.Except) > 0 {
				match += fmt.Sprintf("ip %s != { %s } ", side, strings.Join(withoutOverlap(block.Except), ", "))
			}
			blocks = append(blocks, match)
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
	for _, block := range blocks {
		for _, port := range ports {
			lines = append(lines, block+port)
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
