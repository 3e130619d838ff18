package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var testReaper = sync.OnceValue(NewReaper)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == LimitCommand {
		fmt.Fprintln(os.Stderr, ExecWithLimits(os.Args[2:]))
		os.Exit(126)
	}
	os.Exit(m.Run())
}

func newRegistry(t testing.TB) *Registry {
	t.Helper()
	registry, err := NewRegistry(testReaper(), Environment(), 16)
	if err != nil {
		t.Fatal(err)
	}
	return registry
}

func shell(script string) Spec {
	return Spec{Command: []string{"/bin/sh", "-c", script}, Dir: "/", OutputBytes: 1 << 20, CaptureBytes: 1 << 20}
}

func start(t testing.TB, registry *Registry, spec Spec) *Process {
	t.Helper()
	p, err := registry.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.KillTree() })
	return p
}

func wait(t testing.TB, p *Process) Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	exit, err := p.Wait(ctx)
	if err != nil {
		t.Fatalf("%v did not end: %v", p.Spec.Command, err)
	}
	return exit
}

func output(p *Process, stream Stream) string {
	head, _ := p.Captured(stream)
	return string(head)
}

// R7: death by a signal is 128 plus its number, and names it.
func TestExit(t *testing.T) {
	for script, want := range map[string]Exit{
		"exit 0": {Code: 0}, "exit 3": {Code: 3}, "kill -9 $$": {Code: 137, Signal: syscall.SIGKILL}, "kill -TERM $$": {Code: 143, Signal: syscall.SIGTERM},
	} {
		exit := wait(t, start(t, newRegistry(t), shell(script)))
		if exit.Code != want.Code || exit.Signal != want.Signal {
			t.Errorf("%s ended with %d %v, want %d %v", script, exit.Code, exit.Signal, want.Code, want.Signal)
		}
	}
}

// R14: a program sees the environment it was given.
func TestOutputStreamsAndEnvironment(t *testing.T) {
	t.Setenv("AGENT_SANDBOXD_TOKEN_FILE", "/secret")
	registry := newRegistry(t)
	spec := shell("echo out; echo err 1>&2; echo $GREETING $PWD; env | grep -c AGENT_SANDBOXD_")
	spec.Env, spec.Dir = map[string]string{"GREETING": "hello"}, "/tmp"
	p := start(t, registry, spec)
	wait(t, p)
	if got := output(p, Stdout); got != "out\nhello /tmp\n0\n" {
		t.Errorf("stdout %q", got)
	}
	if got := output(p, Stderr); got != "err\n" {
		t.Errorf("stderr %q", got)
	}
}

func TestStartErrors(t *testing.T) {
	registry := newRegistry(t)
	notExecutable := filepath.Join(t.TempDir(), "plain")
	os.WriteFile(notExecutable, []byte("x"), 0o644)
	for name, c := range map[string]struct {
		spec Spec
		kind StartErrorKind
	}{
		"empty":     {Spec{Dir: "/"}, StartInvalid},
		"not found": {Spec{Command: []string{"no-such-program"}, Dir: "/"}, StartNotFound},
		"no path":   {Spec{Command: []string{"/no/such"}, Dir: "/"}, StartNotFound},
		"no dir":    {Spec{Command: []string{"/bin/true"}, Dir: "/no/such"}, StartNotFound},
		"denied":    {Spec{Command: []string{notExecutable}, Dir: "/"}, StartDenied},
		"bad env":   {Spec{Command: []string{"/bin/true"}, Dir: "/", Env: map[string]string{"A=B": ""}}, StartInvalid},
		"bad user":  {Spec{Command: []string{"/bin/true"}, Dir: "/", User: "no-such-user"}, StartInvalid},
		"bad limit": {Spec{Command: []string{"/bin/true"}, Dir: "/", Limits: []Limit{{Name: "joy"}}}, StartInvalid},
	} {
		_, err := registry.Start(c.spec)
		var failure *StartError
		if !errors.As(err, &failure) || failure.Kind != c.kind {
			t.Errorf("%s: %v, want kind %d", name, err, c.kind)
		}
	}
	if registry.Running() != 0 {
		t.Errorf("%d processes count as running after failures", registry.Running())
	}
}

// Every mistake has one sentence, which the clients of all languages print as it is.
func TestStartErrorsAreExplained(t *testing.T) {
	registry := newRegistry(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain, script, text := write("plain", "x", 0o644), write("script", "#!/no/interpreter -x\n", 0o755), write("text", "hello\n", 0o755)
	host, _ := os.Hostname()
	for name, c := range map[string]struct {
		spec Spec
		kind StartErrorKind
		want string
	}{
		"directory":    {Spec{Command: []string{"/bin/true"}, Dir: "/x/y"}, StartNotFound, "no such directory /x/y in sandbox " + host + "; use one that is there, or make it first"},
		"file as dir":  {Spec{Command: []string{"/bin/true"}, Dir: plain}, StartNotFound, plain + " in sandbox " + host + " is not a directory; use one as the working directory"},
		"program":      {Spec{Command: []string{"./no/such"}, Dir: "/"}, StartNotFound, "no such program /no/such in sandbox " + host + "; use an image that has it, or name another path"},
		"interpreter":  {Spec{Command: []string{script}, Dir: "/"}, StartNotFound, script + " in sandbox " + host + " begins with #!/no/interpreter, and there is no such program; use an image that has it, or name another in the first line"},
		"mode":         {Spec{Command: []string{plain}, Dir: "/"}, StartDenied, plain + " in sandbox " + host + " is not executable; let it be with chmod +x " + plain + ", or run it with its interpreter, such as sh " + plain},
		"mode on PATH": {Spec{Command: []string{"plain"}, Dir: "/", Env: map[string]string{"PATH": dir}}, StartDenied, plain + " in sandbox " + host + " is not executable; let it be with chmod +x " + plain + ", or run it with its interpreter, such as sh " + plain},
		"folder":       {Spec{Command: []string{dir}, Dir: "/"}, StartDenied, dir + " in sandbox " + host + " is a directory, not a program; name a program in it"},
		"no format":    {Spec{Command: []string{text}, Dir: "/"}, StartDenied, text + " in sandbox " + host + " is neither a program nor a script with an interpreter in its first line; run it with its interpreter, such as sh " + text},
	} {
		_, err := registry.Start(c.spec)
		var failure *StartError
		var explained *Explained
		if !errors.As(err, &failure) || failure.Kind != c.kind || !errors.As(err, &explained) || explained.Sentence != c.want {
			t.Errorf("%s: %v, explained %+v; want %q", name, err, explained, c.want)
		}
	}
}

func TestRunningIsBounded(t *testing.T) {
	registry, _ := NewRegistry(testReaper(), nil, 1)
	start(t, registry, shell("sleep 100"))
	_, err := registry.Start(shell("true"))
	var failure *StartError
	if !errors.As(err, &failure) || failure.Kind != StartExhausted {
		t.Fatalf("second process: %v", err)
	}
}

func TestStdinHalfClose(t *testing.T) {
	spec := shell("cat; echo end")
	spec.Stdin = true
	p := start(t, newRegistry(t), spec)
	for _, text := range []string{"one ", "two "} {
		if err := p.Write(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.CloseInput(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait(t, p)
	if got := output(p, Stdout); got != "one two end\n" {
		t.Errorf("stdout %q", got)
	}
	if err := p.CloseInput(t.Context()); err == nil {
		t.Error("the second close succeeded")
	}
}

// R9: writing to an input that is not read ends with its deadline.
func TestWriteGivesUpWithItsContext(t *testing.T) {
	spec := shell("sleep 100")
	spec.Stdin = true
	p := start(t, newRegistry(t), spec)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Write(ctx, make([]byte, 1<<20)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("write to a full pipe: %v", err)
	}
}

func TestNoStdinMeansEmpty(t *testing.T) {
	p := start(t, newRegistry(t), shell("cat"))
	wait(t, p)
	if err := p.Write(t.Context(), []byte("x")); !errors.Is(err, ErrNoInput) {
		t.Fatalf("write: %v", err)
	}
}

// R8: a program sees the size of its terminal from the start.
func TestTerminalSizeIsSetBeforeTheProgramStarts(t *testing.T) {
	spec := shell("stty size; test -t 0 && echo terminal; echo $TERM; read line; echo got $line; stty size; cat")
	spec.Terminal = &Size{Cols: 80, Rows: 24}
	registry := newRegistry(t)
	registry.environment = []string{"PATH=" + os.Getenv("PATH")}
	p := start(t, registry, spec)
	if err := p.Resize(Size{Cols: 100, Rows: 30}); err != nil {
		t.Fatal(err)
	}
	p.Write(t.Context(), []byte("hi\n"))
	time.Sleep(200 * time.Millisecond)
	// Typed end-of-file ends cat without hanging up.
	if err := p.CloseInput(t.Context()); err != nil {
		t.Fatal(err)
	}
	exit := wait(t, p)
	got := output(p, Stdout)
	for _, want := range []string{"terminal\r\n", "xterm-256color\r\n", "got hi\r\n", "30 100\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("output %q lacks %q", got, want)
		}
	}
	if exit.Code != 0 {
		t.Errorf("exit %d", exit.Code)
	}
	if err := p.Resize(Size{Cols: 1, Rows: 1}); !errors.Is(err, ErrNoTerminal) {
		t.Errorf("resize after the end: %v", err)
	}
}

func TestFastProgramSeesItsTerminalSize(t *testing.T) {
	spec := Spec{Command: []string{"stty", "size"}, Dir: "/", CaptureBytes: 100, Terminal: &Size{Cols: 80, Rows: 24}}
	for range 20 {
		p := start(t, newRegistry(t), spec)
		wait(t, p)
		if got := output(p, Stdout); got != "24 80\r\n" {
			t.Fatalf("size %q", got)
		}
	}
}

func alive(pid int) bool {
	_, ok := readRelation(pid)
	return ok
}

// pidsIn reads the process numbers that a script wrote, one file each.
func pidsIn(t *testing.T, directory string, count int) []int {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		names, _ := filepath.Glob(directory + "/*.pid")
		pids := []int{}
		for _, name := range names {
			text, _ := os.ReadFile(name)
			if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				pids = append(pids, pid)
			}
		}
		if len(pids) == count {
			return pids
		}
	}
	t.Fatal("the script did not write its process numbers")
	return nil
}

// treeScript leaves a child, a child in a session of its own, and an orphan in a session of its own.
const treeScript = `sh -c 'echo $$ > child.pid; sleep 1000' &
setsid sh -c 'echo $$ > session.pid; sleep 1000' &
sh -c 'setsid sh -c "echo \$\$ > orphan.pid; sleep 1000" & exit 0'
`

func expectGone(t *testing.T, pids []int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left := 0
		for _, pid := range pids {
			if alive(pid) {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %v survived", left, pids)
		}
	}
}

// R3: ending a process ends its whole tree.
func TestKillTreeReachesOrphansInTheirOwnSession(t *testing.T) {
	spec := shell(treeScript + "sleep 1000")
	spec.Dir = t.TempDir()
	p := start(t, newRegistry(t), spec)
	pids := pidsIn(t, spec.Dir, 3)
	if n, err := p.Signal(syscall.SIGKILL, ScopeTree); err != nil || n < 4 {
		t.Fatalf("signalled %d: %v", n, err)
	}
	expectGone(t, append(pids, p.Pid))
	if exit := wait(t, p); exit.Code != 137 {
		t.Errorf("exit %d", exit.Code)
	}
}

func TestTimeoutKillsTheTree(t *testing.T) {
	spec := shell(treeScript + "echo partial; sleep 1000")
	spec.Dir, spec.Timeout = t.TempDir(), 400*time.Millisecond
	p := start(t, newRegistry(t), spec)
	pids := pidsIn(t, spec.Dir, 3)
	exit := wait(t, p)
	if !exit.TimedOut || output(p, Stdout) != "partial\n" {
		t.Errorf("timed out %v, output %q", exit.TimedOut, output(p, Stdout))
	}
	expectGone(t, pids)
}

func TestSignalScopes(t *testing.T) {
	for _, scope := range []Scope{ScopeTree, ScopeGroup, ScopeProcess} {
		p := start(t, newRegistry(t), Spec{Command: []string{"sleep", "100"}, Dir: "/"})
		if n, err := p.Signal(syscall.SIGTERM, scope); n != 1 || err != nil {
			t.Fatalf("scope %d: %d %v", scope, n, err)
		}
		if exit := wait(t, p); exit.Signal != syscall.SIGTERM {
			t.Errorf("scope %d: %v", scope, exit)
		}
	}
}

// R5: a child in the background does not take the result along.
func TestBackgroundChildDoesNotHoldTheResult(t *testing.T) {
	begun := time.Now()
	p := start(t, newRegistry(t), shell("sleep 1000 & echo started"))
	exit := wait(t, p)
	if exit.Code != 0 || output(p, Stdout) != "started\n" || time.Since(begun) > 3*time.Second {
		t.Fatalf("exit %d, output %q after %v", exit.Code, output(p, Stdout), time.Since(begun))
	}
}

func TestBackgroundChildMayGoOnWriting(t *testing.T) {
	p := start(t, newRegistry(t), shell("(sleep 0.6; echo late && echo alive > /dev/stderr; sleep 1000) & echo started"))
	wait(t, p)
	reader := p.Log.Read(0, false)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, end := p.Log.Bounds(); end == uint64(len("started\nlate\nalive\n")) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("output after the exit was not kept")
		}
	}
	if piece, ok, err := reader.Next(t.Context(), true); !ok || err != nil || !strings.HasPrefix(string(piece.Bytes), "started\n") {
		t.Fatalf("replay %q %v %v", piece.Bytes, ok, err)
	}
}

func TestIdempotencyKeyStartsOnce(t *testing.T) {
	registry := newRegistry(t)
	directory := t.TempDir()
	spec := shell("echo x >> count")
	spec.Dir = directory
	var group sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		group.Go(func() {
			p, _, err := registry.StartOnce("key", spec)
			if err == nil {
				wait(t, p)
				ids[i] = p.ID
			}
		})
	}
	group.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("ids differ: %v", ids)
		}
	}
	if count, _ := os.ReadFile(directory + "/count"); string(count) != "x\n" {
		t.Fatalf("ran more than once: %q", count)
	}
}

func TestFinishedAreForgottenOldestFirst(t *testing.T) {
	registry := newRegistry(t)
	first := start(t, registry, Spec{Command: []string{"true"}, Dir: "/"})
	wait(t, first)
	for range finishedMax + 1 {
		wait(t, start(t, registry, Spec{Command: []string{"true"}, Dir: "/"}))
	}
	if registry.Get(first.ID) != nil {
		t.Fatal("the oldest is still remembered")
	}
	if n := len(registry.List()); n != finishedMax {
		t.Fatalf("%d are remembered", n)
	}
}

func TestPlaceIsFreeOnceTheEndIsKnown(t *testing.T) {
	registry, err := NewRegistry(testReaper(), Environment(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		wait(t, start(t, registry, Spec{Command: []string{"true"}, Dir: "/"}))
	}
}

// R6: limits hold before the first instruction of the program.
func TestLimitsHoldFromTheStart(t *testing.T) {
	spec := shell("ulimit -n; ulimit -c")
	spec.Limits = []Limit{{Name: "nofile", Soft: 77, Hard: 88}, {Name: "core", Soft: 0, Hard: 0}}
	p := start(t, newRegistry(t), spec)
	wait(t, p)
	if got := output(p, Stdout); got != "77\n0\n" {
		t.Fatalf("limits %q, stderr %q", got, output(p, Stderr))
	}
}

func TestUserSwitch(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root, as the product does")
	}
	spec := shell("id -u; id -g; echo $HOME; tty > /dev/null && echo own > /dev/tty")
	spec.User, spec.Terminal = "nobody", &Size{Cols: 80, Rows: 24}
	p := start(t, newRegistry(t), spec)
	wait(t, p)
	if got := output(p, Stdout); !strings.HasPrefix(got, "65534\r\n65534\r\n/nonexistent\r\nown\r\n") {
		t.Fatalf("output %q", got)
	}
	spec = shell("id -u; id -g")
	spec.User = "1234:4321"
	p = start(t, newRegistry(t), spec)
	wait(t, p)
	if got := output(p, Stdout); got != "1234\n4321\n" {
		t.Fatalf("output %q", got)
	}
}

func TestShutdownAsksThenForces(t *testing.T) {
	registry := newRegistry(t)
	polite := start(t, registry, shell("sleep 1000"))
	stubborn := start(t, registry, shell("trap '' TERM; while :; do sleep 1; done"))
	time.Sleep(100 * time.Millisecond)
	registry.Shutdown(func(p *Process) { p.Signal(syscall.SIGTERM, ScopeTree) }, time.After(300*time.Millisecond))
	if exit := wait(t, polite); exit.Signal != syscall.SIGTERM {
		t.Errorf("polite: %v", exit)
	}
	if exit := wait(t, stubborn); exit.Signal != syscall.SIGKILL {
		t.Errorf("stubborn: %v", exit)
	}
	if _, err := registry.Start(shell("true")); err == nil {
		t.Error("a process was started after the shutdown")
	}
}

// R4: no zombie stays behind.
func TestOrphansAreReaped(t *testing.T) {
	if err := BecomeSubreaper(); err != nil {
		t.Fatal(err)
	}
	spec := shell("sh -c 'echo $$ > orphan.pid; sleep 0.3' & exit 0")
	spec.Dir = t.TempDir()
	wait(t, start(t, newRegistry(t), spec))
	pid := pidsIn(t, spec.Dir, 1)[0]
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the orphan stayed a zombie")
		}
	}
}

func TestParseSignal(t *testing.T) {
	for text, want := range map[string]syscall.Signal{"SIGTERM": 15, "term": 15, "9": 9, "HUP": 1, "SIGUSR1": 10, "WINCH": 28} {
		if got, err := ParseSignal(text); err != nil || got != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "65", "-9", "SIGNOPE", "9x"} {
		if got, err := ParseSignal(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func TestParseRelation(t *testing.T) {
	got, ok := parseRelation(7, "7 (a) b (c)) S 1 5 6 0 -1")
	if want := (relation{7, 1, 5, 6}); !ok || got != want {
		t.Errorf("got %v %v", got, ok)
	}
	if _, ok := parseRelation(7, "7 (x) Z 1 5 6"); ok {
		t.Error("a zombie counts as alive")
	}
}

func TestCancelEndsWhatItsKeyStarted(t *testing.T) {
	registry := newRegistry(t)
	p, _, err := registry.StartOnce("key", shell("sleep 1000 & sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	if id := registry.Cancel("key"); id != p.ID {
		t.Errorf("cancelled %q, not %q", id, p.ID)
	}
	if left := p.tree(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if exit := wait(t, p); exit.Signal != syscall.SIGKILL {
		t.Errorf("ended by %v", exit.Signal)
	}
}

func TestCancelOvertakesItsStart(t *testing.T) {
	registry := newRegistry(t)
	if id := registry.Cancel("key"); id != "" {
		t.Errorf("cancelled %q", id)
	}
	var failure *StartError
	if _, _, err := registry.StartOnce("key", shell("sleep 1000")); !errors.As(err, &failure) || failure.Kind != StartCancelled {
		t.Errorf("started: %v", err)
	}
	registry.Cancel("key")
	for i := range cancelledMax {
		registry.Cancel(strconv.Itoa(i))
	}
	if len(registry.byKey) != cancelledMax || len(registry.cancelled) != cancelledMax {
		t.Errorf("%d keys are remembered", len(registry.byKey))
	}
	if p, _, err := registry.StartOnce("key", shell("true")); err != nil {
		t.Error(err)
	} else {
		wait(t, p)
	}
}

// A command whose start may have reached the daemon before this one is not run a second time.
func TestStartAgainRefusesWhatAnEarlierDaemonMayHaveRun(t *testing.T) {
	registry := newRegistry(t)
	var failure *StartError
	if _, _, err := registry.StartAgain("key", shell("true"), time.Hour); !errors.As(err, &failure) || failure.Kind != StartCancelled {
		t.Fatalf("the start of an hour ago: %v", err)
	}
	first, _, err := registry.StartAgain("key", shell("true"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if again, replayed, err := registry.StartAgain("key", shell("true"), time.Hour); err != nil || !replayed || again != first {
		t.Fatalf("a known key: %v, replayed %v", err, replayed)
	}
	wait(t, first)
}

func TestCancelAndStartAtOnceLeaveNothing(t *testing.T) {
	registry := newRegistry(t)
	for i := range 50 {
		key, started := strconv.Itoa(i), make(chan *Process, 1)
		go func() {
			p, _, _ := registry.StartOnce(key, shell("sleep 1000"))
			started <- p
		}()
		registry.Cancel(key)
		if p := <-started; p != nil {
			wait(t, p)
		}
	}
}
