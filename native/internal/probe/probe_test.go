package probe

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTryAllAnswersInOrder(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "mine")
	if err := os.WriteFile(mine, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := TryAll([]Attempt{{Do: "read", Path: mine}, {Do: "nonesuch"}, {Do: "read", Path: mine + "x"}, {Do: "call", Name: "getpid"}})
	for i, want := range []bool{true, false, false, true} {
		if got[i].Through != want || got[i].Detail == "" {
			t.Errorf("attempt %d: %+v, want through %v", i, got[i], want)
		}
	}
}

func TestConnectReachesAListenerAndNoOther(t *testing.T) {
	book := &notebook{out: nil}
	book.count = notedMax
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	port := freePort(t)
	if err := answerAt(net.JoinHostPort("127.0.0.1", port), book); err != nil {
		t.Fatal(err)
	}
	number := silentPort(silent)
	for _, network := range []string{"tcp", "udp"} {
		if got := try(Attempt{Do: "connect", Network: network, Address: "127.0.0.1", Port: toInt(t, port)}); !got.Through {
			t.Errorf("%s: %+v", network, got)
		}
	}
	if got := try(Attempt{Do: "connect", Network: "tcp", Address: "127.0.0.1", Port: number}); got.Through {
		t.Errorf("a listener that does not answer counts as reached: %+v", got)
	}
	if got := try(Attempt{Do: "open-port", Network: "tcp", Address: "127.0.0.1", Port: number}); !got.Through {
		t.Errorf("open port: %+v", got)
	}
}

func freePort(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

func silentPort(listener net.Listener) int { return listener.Addr().(*net.TCPAddr).Port }

func toInt(t *testing.T, text string) int {
	number, err := net.LookupPort("tcp", text)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func TestFindAndPlantBesideAMark(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "probe-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	mark := filepath.Base(dir) + "-mark"
	if err := os.WriteFile(filepath.Join(dir, mark), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{"find", "plant"} {
		if got := try(Attempt{Do: way, Name: mark}); !got.Through {
			t.Errorf("%s: %+v", way, got)
		}
		if got := try(Attempt{Do: way, Name: mark + "-none"}); got.Through {
			t.Errorf("%s found what is not there: %+v", way, got)
		}
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 1 {
		t.Errorf("planting left %d files", len(left))
	}
}

func TestForgedPacketIsAWholeDatagram(t *testing.T) {
	packet, to, err := forged(Attempt{Source: "10.1.2.3", Address: "203.0.113.10", Port: 80, Name: "text"})
	if err != nil {
		t.Fatal(err)
	}
	if checksum(packet[:20]) != 0 || int(binary.BigEndian.Uint16(packet[2:])) != len(packet) {
		t.Errorf("the header does not add up: % x", packet[:20])
	}
	if to.Addr != [4]byte{203, 0, 113, 10} || !strings.HasSuffix(string(packet), "text") {
		t.Errorf("sent to %v: % x", to.Addr, packet)
	}
	if _, _, err := forged(Attempt{Source: "::1", Address: "203.0.113.10"}); err == nil {
		t.Error("an IPv6 sender was taken")
	}
}

func TestLimitsBelowTheLimitComeThrough(t *testing.T) {
	for _, attempt := range []Attempt{
		{Do: "memory", Number: 1 << 20},
		{Do: "disk", Path: t.TempDir(), Number: 2 << 20},
		{Do: "processes", Number: 5},
		{Do: "files", Path: t.TempDir(), Number: 20},
	} {
		if got := try(attempt); !got.Through {
			t.Errorf("%s: %+v", attempt.Do, got)
		}
	}
}

// The test's program takes the place of sandbox-probe where openMany starts it again.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == OpenFilesCommand {
		if err := OpenFiles(os.Args[2], os.Args[3], os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestFilesAreRefusedAtALimitAndLeaveNoNames(t *testing.T) {
	dir := t.TempDir()
	output, err := exec.Command("sh", "-c", `ulimit -n 64 && exec "$@" < /dev/null`, "sh", os.Args[0], OpenFilesCommand, dir, "200").Output()
	if err != nil || !strings.HasSuffix(string(output), " too many open files\n") {
		t.Errorf("%q, %v", output, err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%d names are left", len(left))
	}
}

func TestDescriptorsOfThisProcessLeadNowhere(t *testing.T) {
	if got := try(Attempt{Do: "descriptors"}); got.Through {
		t.Errorf("%+v", got)
	}
	if got := try(Attempt{Do: "descriptors", Path: "/"}); !got.Through {
		t.Errorf("%+v", got)
	}
}

func TestHoldRefusesWhatItCannotMake(t *testing.T) {
	if err := Hold(Marks{Name: "probe-test", Files: []string{"/nonesuch/file"}}, io.Discard); err == nil {
		t.Error("a file in no directory was made")
	}
}
