package hostapi

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A helper is killed 8 seconds after SIGTERM; an export that went on until then would leave a file system frozen.
func TestAnExportEndsWithTheServer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("root alone may export: this test must be started by root")
	}
	s := NewServer(&Host{}, slog.New(slog.DiscardHandler))
	// The export waits for this lock as it would wait for the disk.
	release, err := s.locks.lock(t.Context(), []string{"volume/data"})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	address := filepath.Join(t.TempDir(), "host.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", address)
	}}}
	answered := make(chan error, 1)
	go func() {
		answer, err := client.Post("http://host/v1/exportImage", "application/json", bytes.NewBufferString(`{"kind":"volume","id":"data","pauseMaxMs":30000}`))
		if err == nil {
			err = answer.Body.Close()
		}
		answered <- err
	}()
	for s.locks.users("volume/data") < 2 {
		select {
		case err := <-answered:
			t.Fatalf("it was answered at once: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	stop()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the server waits for the export")
	}
}

func (k *keyLocks) users(key string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l, found := k.locks[key]; found {
		return l.users
	}
	return 0
}
