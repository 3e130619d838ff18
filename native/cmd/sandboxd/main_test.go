package main

import (
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"
	"unsafe"
)

func TestParseConfig(t *testing.T) {
	none := environment(func(string) string { return "" })
	cases := []struct {
		name   string
		args   []string
		listen []string
	}{
		{"reference", nil, []string{"0.0.0.0:8080", "0.0.0.0:9090", ":49900"}},
		{"reference ports", []string{"--listen-host", "127.0.0.1", "--grpc-port=1", "-rest-port", "2"}, []string{"127.0.0.1:1", "127.0.0.1:2", ":49900"}},
		{"serve", []string{"serve"}, []string{":49900"}},
		{"serve with one", []string{"serve", "--rest-port", "81"}, []string{"0.0.0.0:81", ":49900"}},
		{"init off", []string{"init", "--listen", "off", "--", "sleep", "1"}, nil},
		{"extra", []string{"init", "--extra-listen", ":8888, :8080"}, []string{":49900", ":8080", ":8888"}},
	}
	for _, c := range cases {
		config, err := parseConfig(c.args, none, io.Discard)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		slices.Sort(config.listen)
		if !slices.Equal(config.listen, c.listen) {
			t.Errorf("%s listens on %v", c.name, config.listen)
		}
	}
	for _, args := range [][]string{{"--grpc-port", "70000"}, {"--grpc-port", "8080"}, {"serve", "stray"}, {"--nope"}} {
		if _, err := parseConfig(args, none, io.Discard); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}

func TestEnvironmentGivesDefaults(t *testing.T) {
	values := map[string]string{"AGENT_SANDBOXD_LOG_DIR": "/logs", "AGENT_SANDBOXD_LOG_MAX_BYTES": "77", "AGENT_SANDBOXD_TTY": "1", "AGENT_SANDBOXD_SHUTDOWN_TIMEOUT": "3s"}
	config, err := parseConfig([]string{"init", "--log-max-files=9", "--", "app", "--flag"}, func(name string) string { return values[name] }, io.Discard)
	if err != nil || config.logDir != "/logs" || config.logBytesMax != 77 || !config.terminal || config.logFilesMax != 9 || config.shutdownTimeout != 3*time.Second {
		t.Errorf("%+v %v", config, err)
	}
	if !slices.Equal(config.command, []string{"app", "--flag"}) {
		t.Errorf("command %v", config.command)
	}
}

func TestLegacyTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{"": legacyTimeoutDefault, "1.5": 1500 * time.Millisecond, "0": legacyTimeoutDefault, "inf": legacyTimeoutDefault, "nan": legacyTimeoutDefault, "-1": legacyTimeoutDefault} {
		t.Setenv("SANDBOX_EXEC_TIMEOUT_SECONDS", text)
		if got := legacyTimeout(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestOnlyUnwritableMappingsAreDropped(t *testing.T) {
	for line, want := range map[string]bool{
		"00400000-00401000 r-xp 00000000 fe:00 12 /bin/me": true, "00401000-00402000 r--p 00000000 fe:00 12 /bin/me": true,
		"00402000-00403000 rw-p 00000000 fe:00 12 /bin/me": false, "00400000-00401000 r-xp 00000000 fe:00 12 /bin/other": false, "00400000-00401000 r-xp 0 0 0": false, "": false,
	} {
		if start, size, ok := parseReadOnlyMapping(line, "/bin/me"); ok != want || ok && (start == unsafe.Pointer(nil) || size != 4096) {
			t.Errorf("%q: %v", line, ok)
		}
	}
}

func TestStayLeanBoundsProcessorsUnlessTold(t *testing.T) {
	before, percent := runtime.GOMAXPROCS(processorsMax+3), debug.SetGCPercent(100)
	defer func() { runtime.GOMAXPROCS(before); debug.SetGCPercent(percent) }()
	t.Setenv("GOGC", "100")
	t.Setenv("GOMAXPROCS", "7")
	stayLean()
	if got := runtime.GOMAXPROCS(0); got != processorsMax+3 {
		t.Errorf("%d processors although the environment decides", got)
	}
	t.Setenv("GOMAXPROCS", "")
	stayLean()
	if got := runtime.GOMAXPROCS(0); got != processorsMax {
		t.Errorf("%d processors", got)
	}
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("garbage at %d percent although the environment decides", got)
	}
	t.Setenv("GOGC", "")
	stayLean()
	if got := debug.SetGCPercent(100); got != gcPercent {
		t.Errorf("garbage at %d percent", got)
	}
}
