// The mistakes of mistakes.ts, made with the Go SDK: `mistakes <mistake>` prints that error as log.Fatal does.
package main

import (
	"context"
	"log"
	"os"
	"time"

	sandbox "agent-sandbox.dev/sdk"
)

var ctx = context.Background()

var mistakes = map[string]func() error{
	"wrong-pool": func() error { _, err := sandbox.Claim(ctx, "gpu-pool"); return err },
	"bad-image": func() error {
		_, err := sandbox.Create(ctx, sandbox.WithImage("127.0.0.1:5999/no-such-image:1"))
		return err
	},
	"missing-command": func() error { return get("dev").Command(ctx, "pythn", "main.py").Run() },
	"missing-directory": func() error {
		ls := get("dev").Shell(ctx, "ls")
		ls.Dir = "/srv/app"
		return ls.Run()
	},
	"not-executable":  func() error { return get("dev").Command(ctx, "/etc/hostname").Run() },
	"failing-command": func() error { _, err := get("dev").Shell(ctx, "cat /no/such/file").Output(); return err },
	"timeout": func() error {
		sleep := get("dev").Shell(ctx, "sleep 60")
		sleep.CommandTimeout = time.Second
		return sleep.Run()
	},
	"out-of-memory": func() error {
		box, err := sandbox.Create(ctx, sandbox.WithMemory("96Mi"))
		if err != nil {
			return err
		}
		defer box.Delete(ctx)
		return box.Shell(ctx, "tail /dev/zero").Run()
	},
	"no-such-sandbox": func() error { _, err := sandbox.Get(ctx, "dve"); return err },
	"no-engine":       func() error { _, err := sandbox.Create(ctx); return err },
	"no-permission":   func() error { _, err := sandbox.Create(ctx); return err },
	"disk-full":       func() error { return get("dev").Files().Write(ctx, "/small/big", make([]byte, 64<<20)) },
	"held":            func() error { _, err := get("held").Run(ctx, "true"); return err },
}

func main() {
	log.SetFlags(0)
	if err := mistakes[os.Args[1]](); err != nil {
		log.Fatal(err)
	}
}

func get(name string) *sandbox.Sandbox {
	box, err := sandbox.Get(ctx, name)
	if err != nil {
		log.Fatal(err)
	}
	return box
}
