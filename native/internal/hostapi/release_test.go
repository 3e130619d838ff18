package hostapi

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/layer"
	"agent-sandbox.dev/native/internal/rootfs"
)

// rootfsServer serves an instance of which one root file system is recorded, with the writable layer `layer`.
func rootfsServer(t *testing.T) *Server {
	t.Helper()
	inst, err := instance.New(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree, err := confine.OpenTree(inst.Host())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	shelf, err := durable.NewShelf(tree)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := layer.NewStore(tree, confine.Caller{Dir: inst.NodeDir()}, shelf)
	if err != nil {
		t.Fatal(err)
	}
	store, err := rootfs.NewStore(tree, layers, shelf)
	if err != nil {
		t.Fatal(err)
	}
	record := map[string]any{"request": rootfs.Request{ID: "root", KeepKey: "layer"}}
	if err := durable.Write(tree.At("rootfs/root.json"), record); err != nil {
		t.Fatal(err)
	}
	return NewServer(&Host{Instance: inst, Rootfs: store}, slog.New(slog.DiscardHandler))
}

// An export holds the lock of the layer that it copies.
func TestALayerIsNotUnmountedWhileItIsExported(t *testing.T) {
	ways := map[string]func(context.Context, *Server) error{
		"releaseRootfs": func(ctx context.Context, s *Server) error {
			_, err := s.verbs["releaseRootfs"].run(ctx, []byte(`{"id":"root"}`))
			return err
		},
		"sweep": func(ctx context.Context, s *Server) error {
			w := &sweeper{server: s, ctx: ctx}
			w.rootfs(SweepRequest{})
			if len(w.report.Failed) > 0 {
				return errors.New(w.report.Failed[0].Message)
			}
			return nil
		},
	}
	for name, release := range ways {
		t.Run(name, func(t *testing.T) {
			s := rootfsServer(t)
			exported, err := s.locks.lock(t.Context(), []string{"writable/layer"})
			if err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := release(short, s); err == nil {
				t.Error("released while the layer was exported")
			}
			if key, err := s.host.Rootfs.KeyOf("root"); key != "layer" || err != nil {
				t.Errorf("the record names layer %q, %v", key, err)
			}
			exported()
			if err := release(t.Context(), s); err != nil {
				t.Error(err)
			}
			if list, err := s.host.Rootfs.List(); len(list) != 0 || err != nil {
				t.Errorf("still there: %v, %v", list, err)
			}
		})
	}
}
