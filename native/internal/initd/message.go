package initd

import (
	"io"
	"log/slog"
	"os"
)

// messageBytesMax is how much of a termination message is kept; the kubelet's figure.
const messageBytesMax = 4096

// offerMessageFile makes the file that the entrypoint may leave a last word in, for whatever user it runs as. Where it cannot be made the
// entrypoint may still make it itself.
func offerMessageFile(name string) {
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return
	}
	// The umask has taken from the mode.
	_ = f.Chmod(0o666)
	_ = f.Close()
}

// keepMessage copies the last word to where it outlives the sandbox.
func keepMessage(from, to string) {
	if from == "" || to == "" {
		return
	}
	source, err := os.Open(from)
	if err != nil {
		return
	}
	defer source.Close()
	message, err := io.ReadAll(io.LimitReader(source, messageBytesMax))
	if err != nil || len(message) == 0 {
		return
	}
	if err := os.WriteFile(to, message, 0o644); err != nil {
		slog.Error("termination message cannot be written", "file", to, "error", err)
	}
}
