// Package instance names everything that one engine on this machine owns, so that two engines never meet and a sweep finds what one left.
package instance

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
)

// Instance is one engine: its data directory and the six hex digits that are in the name of all it makes.
type Instance struct {
	ID      string
	DataDir string
	RunDir  string
}

// SlotMax is the highest slot number: four hex digits keep a link's name within the kernel's fifteen characters.
const SlotMax = 0xffff

// The longest id keeps a runtime's control socket path under the kernel's 108 bytes.
var idPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?$`)

// New names the engine of a data directory.
func New(dataDir, runRoot string) (Instance, error) {
	abs, err := filepath.Abs(dataDir)
	if err != nil {
		return Instance{}, err
	}
	sum := sha256.Sum256([]byte(abs))
	id := hex.EncodeToString(sum[:])[:6]
	return Instance{ID: id, DataDir: abs, RunDir: filepath.Join(runRoot, id)}, nil
}

// CheckID refuses an id that is not safe as a file name and as a runtime's container name.
func CheckID(field, id string) error {
	if !idPattern.MatchString(id) {
		return hosterr.New(hosterr.InvalidArgument, "%s: %q is not an id: 1 to 52 of a-z, 0-9 and -, not - at either end", field, id)
	}
	return nil
}

// Data is a path below the data directory.
func (i Instance) Data(parts ...string) string {
	return filepath.Join(append([]string{i.DataDir}, parts...)...)
}

// Host is a path below the helper's own part of the data directory, which belongs to root and which no verb can name.
func (i Instance) Host(parts ...string) string {
	return i.Data(append([]string{"host"}, parts...)...)
}

// IDsIn are the ids that a directory has entries of.
func IDsIn(dir confine.Entry, suffix string) ([]string, error) {
	entries, err := dir.ReadDir()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, entry := range entries {
		id, found := strings.CutSuffix(entry.Name(), suffix)
		if found && CheckID("id", id) == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// NodeDir is the directory of the node's user, the only one that a verb's path is looked up in.
func (i Instance) NodeDir() string { return i.Data("engine", "node") }

// Run is a path below the run directory.
func (i Instance) Run(parts ...string) string {
	return filepath.Join(append([]string{i.RunDir}, parts...)...)
}

// LinkPrefix starts the name of every host link of a slot.
func (i Instance) LinkPrefix() string { return "as" + i.ID + "h" }

// HostLink is the name of a slot's link on the host's side.
func (i Instance) HostLink(slot int) string { return fmt.Sprintf("%s%04x", i.LinkPrefix(), slot) }

// GatewayLink is the name of the link that has the gateway address.
func (i Instance) GatewayLink() string { return "as" + i.ID + "gw" }

// NamespaceDir is the directory of the slots' network namespaces, below the run directory: in /run/netns another program's bind mount could come to lie over them, and they could not be removed any more.
const NamespaceDir = "netns"

// Namespace is the name of a slot's network namespace.
func (i Instance) Namespace(slot int) string { return fmt.Sprintf("%s%04x", i.namespacePrefix(), slot) }

func (i Instance) namespacePrefix() string { return "as-" + i.ID + "-" }

// SlotOfNamespace is the inverse of Namespace.
func (i Instance) SlotOfNamespace(name string) (int, bool) {
	digits, found := strings.CutPrefix(name, i.namespacePrefix())
	if !found || len(digits) != 4 {
		return 0, false
	}
	slot, err := strconv.ParseUint(digits, 16, 16)
	return int(slot), err == nil
}

// Table is the name of the nftables table.
func (i Instance) Table() string { return "as_" + i.ID }

// Cgroup is the name of the cgroup that all of the instance's are below.
func (i Instance) Cgroup() string { return "agent-sandbox-" + i.ID }
