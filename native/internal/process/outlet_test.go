package process

import (
	"context"
	"strings"
	"testing"
	"time"
)

// states are those of both streams.
func (p *Process) states() (states [2]outletState) {
	for i := range p.outputs {
		p.outputs[i].mu.Lock()
		states[i] = p.outputs[i].state
		p.outputs[i].mu.Unlock()
	}
	return states
}

func TestPumpsRunOnlyForStreamsWithOutput(t *testing.T) {
	registry := newRegistry(t)
	for script, want := range map[string][2]outletState{
		"":                       {outletEnded, outletEnded},
		"exec >&- 2>&-":          {outletEnded, outletEnded},
		"echo out":               {outletPumped, outletEnded},
		"echo err >&2":           {outletEnded, outletPumped},
		"echo out; echo err >&2": {outletPumped, outletPumped},
	} {
		p := start(t, registry, shell(script))
		if wait(t, p); p.states() != want {
			t.Errorf("%q: %v, want %v", script, p.states(), want)
		}
		if out := output(p, Stdout); strings.Contains(script, "out") != (out == "out\n") {
			t.Errorf("%q: said %q", script, out)
		}
	}
}

// What a process leaves in the background may still have something to say on a stream that was silent until then.
func TestOutputOfABackgroundProcessOnASilentStream(t *testing.T) {
	p := start(t, newRegistry(t), shell("(sleep 0.1; echo late >&2) &"))
	if exit := wait(t, p); exit.Code != 0 || output(p, Stderr) != "late\n" {
		t.Errorf("%+v, said %q", exit, output(p, Stderr))
	}
}

// A process that closes its outputs has not ended, nor does it keep the next one from ending.
func TestProcessWithoutOutputsLivesOn(t *testing.T) {
	registry := newRegistry(t)
	p := start(t, registry, shell("exec >&- 2>&- < /dev/null; exec sleep 30"))
	wait(t, start(t, registry, shell("true")))
	ctx, cancel := context.WithTimeout(t.Context(), 3*outputQuiet)
	defer cancel()
	if exit, err := p.Wait(ctx); err == nil {
		t.Errorf("ended: %+v", exit)
	}
	p.KillTree()
	wait(t, p)
}

// More than a pipe holds, on both streams at once and with no follower.
func TestMuchOutputOnBothStreams(t *testing.T) {
	p := start(t, newRegistry(t), shell("head -c 300000 /dev/zero & head -c 300000 /dev/zero >&2; wait"))
	wait(t, p)
	if out, err := output(p, Stdout), output(p, Stderr); len(out) != 300000 || len(err) != 300000 {
		t.Errorf("%d and %d bytes", len(out), len(err))
	}
}

func TestEndedProcessesKeepNoDescriptors(t *testing.T) {
	registry := newRegistry(t)
	wait(t, start(t, registry, shell("echo warm")))
	before := openDescriptors(t)
	for range 20 {
		wait(t, start(t, registry, shell("")))
		wait(t, start(t, registry, shell("echo out; echo err >&2")))
	}
	if after := openDescriptors(t); after > before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

// First output must not wait for anything: it is read as it comes.
func TestFirstOutputIsSeenAtOnce(t *testing.T) {
	p := start(t, newRegistry(t), shell("echo first; exec sleep 30"))
	reader := p.Log.Read(0, false)
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if piece, _, err := reader.Next(ctx, true); err != nil || string(piece.Bytes) != "first\n" {
		t.Errorf("%q %v", piece.Bytes, err)
	}
}
