package ociruntime

import (
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
)

// The sentences are recorded from the pinned runsc and from runc 1.1.
func TestClassifyRecordedOutputs(t *testing.T) {
	cases := map[string]hosterr.Code{
		`running container: starting container: starting sub-container [/bin/nonexist]: creating process: failed to load /bin/nonexist: no such file or directory`: hosterr.StartFailed,
		`runc run failed: unable to start container process: exec: "/bin/nonexist": stat /bin/nonexist: no such file or directory`:                                 hosterr.StartFailed,
		`exec failed: unable to start container process: exec: "/bin/nonexist": stat /bin/nonexist: no such file or directory`:                                     hosterr.StartFailed,
		`container does not exist`: hosterr.NotFound,
		`waiting on container "t1": sandbox no longer running and its exit status is unavailable`: hosterr.Busy,
		`cannot exec in a stopped container`:                                                      hosterr.Busy,
		`writing checkpoint: write pages.img: no space left on device`:                            hosterr.NoSpace,
		`creating container: cannot create sandbox: something nobody has seen`:                    hosterr.RuntimeFailed,
	}
	for message, want := range cases {
		if got := classify(message); got != want {
			t.Errorf("%q is %s, want %s", message, got, want)
		}
	}
}

func TestStatusInLogReadsTheSentrysLastWords(t *testing.T) {
	tree, err := confine.OpenTree(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	name := tree.At("boot.log")
	log := "I1115 20:57:02.877173       1 boot.go:779] application exiting with exit status 7\n" +
		"I1115 20:57:02.877342       1 watchdog.go:222] Watchdog stopped\n" +
		"I1115 20:57:02.877574       1 cli.go:317] Exiting with status: 1792\n"
	if err := name.WriteFile([]byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	status, at, err := statusInLog(name)
	if err != nil {
		t.Fatal(err)
	}
	if x := exitOf(status, at); x.ExitCode == nil || *x.ExitCode != 7 || x.Signal != nil {
		t.Errorf("got %+v", x)
	}
	if err := name.WriteFile([]byte("I1115 20:57:02 loader.go: running\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := statusInLog(name); err == nil {
		t.Error("a log without an end gave a status")
	}
}

func TestExitOfASignalIs128AndIt(t *testing.T) {
	at := exitOf(9, time.Now())
	if at.Signal == nil || *at.Signal != 9 || *at.ExitCode != 137 {
		t.Errorf("got %+v", at)
	}
}

func TestCheckRefusesWhatTheContractDoesNotName(t *testing.T) {
	good := func() RunRequest {
		return RunRequest{ID: "c", Runtime: Runsc, Rootfs: "r", Process: Process{Argv: []string{"/bin/true"}, Cwd: "/"}}
	}
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	slot := 1
	cases := map[string]func(*RunRequest){
		"id":              func(r *RunRequest) { r.ID = "../c" },
		"runtime":         func(r *RunRequest) { r.Runtime = "kata" },
		"itself":          func(r *RunRequest) { r.SandboxID = "c" },
		"argv":            func(r *RunRequest) { r.Process.Argv = nil },
		"null byte":       func(r *RunRequest) { r.Process.Argv = []string{"a\x00b"} },
		"env":             func(r *RunRequest) { r.Process.Env = []string{"novalue"} },
		"cwd":             func(r *RunRequest) { r.Process.Cwd = "relative" },
		"capability":      func(r *RunRequest) { r.Process.Capabilities = []string{"CAP_EVERYTHING"} },
		"capability runc": func(r *RunRequest) { r.Runtime, r.Process.Capabilities = Runc, []string{"CAP_SYS_ADMIN"} },
		"joiner's slot":   func(r *RunRequest) { r.SandboxID, r.Slot = "root", &slot },
		"mount on root":   func(r *RunRequest) { r.Mounts = []Mount{{Source: Source{Kind: "tmpfs", SizeBytes: 4096}, Target: "/"}} },
		"mount on proc": func(r *RunRequest) {
			r.Mounts = []Mount{{Source: Source{Kind: "tmpfs", SizeBytes: 4096}, Target: "/proc/sys"}}
		},
		"mount dots": func(r *RunRequest) {
			r.Mounts = []Mount{{Source: Source{Kind: "tmpfs", SizeBytes: 4096}, Target: "/a/../.."}}
		},
		"mount kind": func(r *RunRequest) { r.Mounts = []Mount{{Source: Source{Kind: "device"}, Target: "/a"}} },
		"program": func(r *RunRequest) {
			r.Mounts = []Mount{{Source: Source{Kind: "program", Name: "../etc"}, Target: "/a"}}
		},
		"stdout":   func(r *RunRequest) { r.StdoutPath = "/etc/passwd" },
		"rlimit":   func(r *RunRequest) { r.Rlimits = []Rlimit{{Type: "RLIMIT_NOFILE", Soft: 2, Hard: 1}} },
		"sysctl":   func(r *RunRequest) { r.Runtime, r.Sysctls = Runc, map[string]string{"kernel.core_pattern": "|/x"} },
		"hostname": func(r *RunRequest) { r.Hostname = "a b" },
	}
	for name, change := range cases {
		r := good()
		change(&r)
		if err := r.Check(); err == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
}
