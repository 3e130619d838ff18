// Command runsc is gVisor's own program, and tells a sandbox how much of the machine it has. gVisor takes both figures from a cgroup of its
// making or from the machine; ours are made before it starts, and those of a sandbox made ahead are known only after it has.
package main

import (
	"os"

	"gvisor.dev/gvisor/runsc/cli/maincli"
	"gvisor.dev/gvisor/runsc/version"
)

// The linker sets the version only of a package that is used.
var _ = version.Version()

func main() {
	os.Args = bootArgs(os.Args)
	maincli.Main()
}
