// Command containerd-shim-runsc-v1 is gVisor's shim for containerd, started in a way that a machine without CAP_SYS_RESOURCE lets it: gVisor's
// own start lowers the new shim's oom_score_adj to -999 and ends it where that is refused.
package main

import (
	"context"
	"os"
	"os/exec"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	containerd "github.com/containerd/containerd/v2/pkg/shim"
	gvisor "gvisor.dev/gvisor/pkg/shim/v1"
	_ "gvisor.dev/gvisor/pkg/shim/v1/plugin" // The service that containerd calls registers itself.
)

func main() {
	containerd.Run(context.Background(), manager{gvisor.NewShimManager("io.containerd.runsc.v1")})
}

// manager is gVisor's, but for the start.
type manager struct{ containerd.Manager }

// addressFile is where the shim finds, in its working directory, which socket to remove at its end.
const addressFile = "address"

// Start makes the shim's socket and starts this program again as the shim, which serves on it.
func (m manager) Start(ctx context.Context, id string, opts containerd.StartOpts) (params containerd.BootstrapParams, err error) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return params, err
	}
	self, err := os.Executable()
	if err != nil {
		return params, err
	}
	address, err := containerd.SocketAddress(ctx, opts.Address, id, opts.Debug)
	if err != nil {
		return params, err
	}
	socket, err := containerd.NewSocket(address)
	if err != nil {
		return params, err
	}
	defer func() {
		if err != nil {
			_ = containerd.RemoveSocket(address)
		}
	}()
	listener, err := socket.File()
	if err != nil {
		return params, err
	}
	if err = os.WriteFile(addressFile, []byte(address), 0o600); err != nil {
		return params, err
	}
	shim := exec.Command(self, "-namespace", namespace, "-address", opts.Address, "-id", id)
	shim.ExtraFiles = []*os.File{listener}
	// A signal to containerd's group must not reach it.
	shim.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err = shim.Start(); err != nil {
		return params, err
	}
	return containerd.BootstrapParams{Version: 2, Address: address, Protocol: "ttrpc"}, nil
}
