// Package ruleset renders what sandboxes may reach as one nftables table and changes it in transactions that cost as much as what they change.
package ruleset

import (
	"fmt"
	"regexp"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/netslot"
)

// Port is a port, a range, or every port of a protocol.
type Port struct {
	Protocol string `json:"protocol"`
	Port     int    `json:"port,omitempty"`
	EndPort  int    `json:"endPort,omitempty"`
}

// Block is a range without some parts.
type Block struct {
	CIDR   string   `json:"cidr"`
	Except []string `json:"except,omitempty"`
}

// Allow lets traffic with any of the blocks or of the groups' addresses on any of the ports pass; without either list of peers, and without a list
// of ports, any will do; an empty list matches nothing.
type Allow struct {
	Blocks *[]Block  `json:"blocks,omitempty"`
	Groups *[]string `json:"groups,omitempty"`
	Ports  *[]Port   `json:"ports,omitempty"`
}

// Group is a set of addresses that rules name as one, so that who joins it changes no rule.
type Group struct {
	ID        string   `json:"id"`
	Addresses []string `json:"addresses"`
}

// Endpoint is one sandbox.
type Endpoint struct {
	Slot    int    `json:"slot"`
	Address string `json:"address"`
	// Held: it has its network, but connections to it wait as those to a sleeping one do.
	Held    bool    `json:"held,omitempty"`
	Ingress []Allow `json:"ingress"`
	Egress  []Allow `json:"egress"`
}

// Sleeping is the address of a sandbox that is asleep.
type Sleeping struct {
	Address string  `json:"address"`
	Ingress []Allow `json:"ingress"`
}

// RuleSet is everything the table holds.
type RuleSet struct {
	// Revision is the caller's name for this state; a Change builds on it.
	Revision     string     `json:"revision,omitempty"`
	Endpoints    []Endpoint `json:"endpoints"`
	GatewayPorts []Port     `json:"gatewayPorts"`
	Sleeping     []Sleeping `json:"sleeping"`
	Groups       []Group    `json:"groups,omitempty"`
}

// A full /16 of sandboxes, more rules per sandbox than Kubernetes lets a policy hold in one object, and a peer of their own for as many sandboxes.
const (
	endpointsMax = 65536
	allowsMax    = 4096
	groupsMax    = 65536
)

// Check refuses a rule set with anything but well-formed numbers and ranges, so that rendering cannot be led astray.
func (r RuleSet) Check() error {
	if len(r.Endpoints) > endpointsMax || len(r.Sleeping) > endpointsMax || len(r.Groups) > groupsMax {
		return hosterr.New(hosterr.InvalidArgument, "endpoints: more than %d, or more than %d groups", endpointsMax, groupsMax)
	}
	seen := map[string]string{}
	for i, e := range r.Endpoints {
		field := fmt.Sprintf("endpoints[%d]", i)
		if err := netslot.CheckSlot(e.Slot); err != nil {
			return hosterr.New(hosterr.InvalidArgument, "%s.%v", field, err)
		}
		if err := checkOne(field, e.Address, e.Ingress, e.Egress, seen); err != nil {
			return err
		}
		slot := fmt.Sprintf("slot %d", e.Slot)
		if other, taken := seen[slot]; taken {
			return hosterr.New(hosterr.InvalidArgument, "%s.slot: %s has it too", field, other)
		}
		seen[slot] = field
	}
	for i, s := range r.Sleeping {
		if err := checkOne(fmt.Sprintf("sleeping[%d]", i), s.Address, s.Ingress, nil, seen); err != nil {
			return err
		}
	}
	for i, g := range r.Groups {
		if err := checkGroup(fmt.Sprintf("groups[%d]", i), g.ID, g.Addresses); err != nil {
			return err
		}
	}
	return checkPorts("gatewayPorts", r.GatewayPorts)
}

func checkOne(field, address string, ingress, egress []Allow, seen map[string]string) error {
	parsed, err := netslot.ParseAddress(field+".address", address)
	if err != nil {
		return err
	}
	if other, taken := seen[parsed.String()]; taken {
		return hosterr.New(hosterr.InvalidArgument, "%s.address: %s has it too", field, other)
	}
	seen[parsed.String()] = field
	for direction, allows := range map[string][]Allow{"ingress": ingress, "egress": egress} {
		if len(allows) > allowsMax {
			return hosterr.New(hosterr.InvalidArgument, "%s.%s: more than %d", field, direction, allowsMax)
		}
		for i, allow := range allows {
			if err := checkAllow(fmt.Sprintf("%s.%s[%d]", field, direction, i), allow); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkAllow(field string, allow Allow) error {
	if allow.Blocks != nil {
		for i, block := range *allow.Blocks {
			name := fmt.Sprintf("%s.blocks[%d]", field, i)
			whole, err := netslot.ParseRange(name+".cidr", block.CIDR)
			if err != nil {
				return err
			}
			for j, text := range block.Except {
				part, err := netslot.ParseRange(fmt.Sprintf("%s.except[%d]", name, j), text)
				if err != nil {
					return err
				}
				if !whole.Overlaps(part) || part.Bits() < whole.Bits() {
					return hosterr.New(hosterr.InvalidArgument, "%s.except[%d]: %s is not within %s", name, j, part, whole)
				}
			}
		}
	}
	if allow.Groups != nil {
		for i, id := range *allow.Groups {
			if err := checkGroup(fmt.Sprintf("%s.groups[%d]", field, i), id); err != nil {
				return err
			}
		}
	}
	if allow.Ports != nil {
		return checkPorts(field+".ports", *allow.Ports)
	}
	return nil
}

func checkPorts(field string, ports []Port) error {
	for i, p := range ports {
		switch p.Protocol {
		case "TCP", "UDP", "SCTP":
		default:
			return hosterr.New(hosterr.InvalidArgument, "%s[%d].protocol: %q is not TCP, UDP or SCTP", field, i, p.Protocol)
		}
		if p.Port < 0 || p.Port > 65535 || p.EndPort < 0 || p.EndPort > 65535 || (p.EndPort != 0 && p.EndPort < p.Port) || (p.EndPort != 0 && p.Port == 0) {
			return hosterr.New(hosterr.InvalidArgument, "%s[%d]: %d to %d is not a range of ports", field, i, p.Port, p.EndPort)
		}
	}
	return nil
}

var groupID = regexp.MustCompile(`^[0-9a-f]{1,64}$`)

func checkGroup(field, id string, lists ...[]string) error {
	if !groupID.MatchString(id) {
		return hosterr.New(hosterr.InvalidArgument, "%s: %q is not a group's name", field, id)
	}
	for _, list := range lists {
		if len(list) > endpointsMax {
			return hosterr.New(hosterr.InvalidArgument, "%s: more than %d", field, endpointsMax)
		}
		for _, address := range list {
			if _, err := netslot.ParseAddress(field, address); err != nil {
				return err
			}
		}
	}
	return nil
}
