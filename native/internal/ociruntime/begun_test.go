package ociruntime

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/iotest"
	"time"
)

func TestWaitsToGoOn(t *testing.T) {
	const counted = "goroutine 7 [sleep]:\ntime.Sleep(0xf4240)\ngvisor.dev/gvisor/runsc/boot.(*restorer).awaitResume(0x1)"
	const uncounted = "goroutine 7 [running]:\ngvisor.dev/gvisor/pkg/sentry/kernel.(*Kernel).Pause(0x1)\ngvisor.dev/gvisor/runsc/boot.(*restorer).awaitResume(0x1)"
	const other = "goroutine 9 [sleep]:\ntime.Sleep(0xf4240)\ngvisor.dev/gvisor/pkg/sentry/watchdog.(*Watchdog).loop(0x3)"
	for _, one := range []struct {
		name, stacks string
		want         bool
	}{
		{"none", other, false},
		{"its stop is not counted yet, and another sleeps", uncounted + "\n\n" + other, false},
		{"waits", other + "\n\n" + counted, true},
	} {
		if got := waitsToGoOn(one.stacks); got != one.want {
			t.Errorf("%s: %v", one.name, got)
		}
	}
}

func TestContains(t *testing.T) {
	text := []byte(waitsAnnotation)
	// In the middle of what two reads return.
	long := bytes.Repeat([]byte("."), 3*readBytes)
	copy(long[readBytes-5:], text)
	for name, one := range map[string]struct {
		content []byte
		want    bool
	}{
		"nothing":  {nil, false},
		"a part":   {text[:len(text)-1], false},
		"itself":   {text, true},
		"far away": {long, true},
		"twice":    {append(append([]byte{}, text[1:]...), text...), true},
	} {
		if got, err := contains(iotest.HalfReader(bytes.NewReader(one.content)), text); err != nil || got != one.want {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}

func TestAKnownEndOfARestoreIsToldWhateverElseIsOver(t *testing.T) {
	ended := &restoreWait{done: make(chan struct{}), err: errors.New("a page")}
	close(ended.done)
	gone, leave := context.WithCancel(t.Context())
	leave()
	// Which of several select takes is left to chance.
	for range 100 {
		for _, ctx := range []context.Context{t.Context(), gone} {
			if _, err := ended.within(ctx, 0); err != ended.err {
				t.Fatalf("%v instead of %v", err, ended.err)
			}
		}
	}
	open := &restoreWait{done: make(chan struct{})}
	if restored, err := open.within(t.Context(), 0); restored || err != nil {
		t.Errorf("%v, %v", restored, err)
	}
	if _, err := open.within(gone, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
