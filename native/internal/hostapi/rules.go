package hostapi

import (
	"context"

	"agent-sandbox.dev/native/internal/ruleset"
)

// applyRules replaces the whole table.
func (h *Host) applyRules(ctx context.Context, r ruleset.RuleSet) error {
	if err := r.Check(); err != nil {
		return err
	}
	h.rules.Lock()
	defer h.rules.Unlock()
	scope, err := h.ruleScope()
	if err != nil {
		return err
	}
	step := h.table.PlanAll(r, scope)
	if err := h.commitRules(ctx, step); err != nil {
		return err
	}
	h.coverage.Set(r.Endpoints)
	return h.Network.RouteSleeping(h.table.Sleeping())
}

// changeRules changes what differs; `not-found` when the change builds on a revision that is not in force.
func (h *Host) changeRules(ctx context.Context, c ruleset.Change) error {
	if err := c.Check(); err != nil {
		return err
	}
	h.rules.Lock()
	defer h.rules.Unlock()
	step, err := h.table.PlanChange(c)
	if err != nil {
		return err
	}
	if err := h.commitRules(ctx, step); err != nil {
		return err
	}
	h.coverage.Change(c)
	return h.Network.RouteChanged(step.Asleep, step.Roused)
}

// commitRules puts a step in force. Connections that its rules divert are expected before it, and those that the rules before it diverted after
// it: one of them may be on its way in either direction.
func (h *Host) commitRules(ctx context.Context, step ruleset.Step) error {
	h.table.Expect(step)
	if step.Commands != "" {
		if err := ruleset.Run(ctx, step.Commands); err != nil {
			h.table.Doubt()
			return err
		}
	}
	h.table.Commit(step)
	// The next sandbox to have such an address is another one: what waits for the old one is reset.
	for _, address := range step.Gone {
		h.Held.Drop(address)
	}
	return nil
}

func (h *Host) ruleScope() (ruleset.Scope, error) {
	gateway, err := h.Network.Gateway()
	if err != nil {
		return ruleset.Scope{}, err
	}
	cidr, err := h.Network.CIDR()
	if err != nil {
		return ruleset.Scope{}, err
	}
	port, err := h.Held.Ensure(gateway)
	return ruleset.Scope{
		Table: h.Instance.Table(), LinkPrefix: h.Instance.LinkPrefix(), HostLink: h.Instance.HostLink, GatewayLink: h.Instance.GatewayLink(),
		Gateway: gateway, CIDR: cidr, Dialers: []uint32{h.NodeUID, h.RouterUID}, NodeUID: h.NodeUID, HoldPort: port,
	}, err
}

func (h *Host) removeRules(ctx context.Context) error {
	h.rules.Lock()
	defer h.rules.Unlock()
	h.coverage.Set(nil)
	h.table.Doubt()
	return ruleset.Remove(ctx, h.Instance.Table())
}
