package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestPauseAnswersWhenItHasTheNameAndNoRights(t *testing.T) {
	var done []string
	var answer bytes.Buffer
	setName := func(name []byte) error {
		done = append(done, "name "+string(name)+answer.String())
		return nil
	}
	giveUp := func() error {
		done = append(done, "give up"+answer.String())
		return nil
	}
	err := pause(strings.NewReader("box-1\n"), &answer, setName, giveUp)
	if got := strings.Join(done, ", "); err != nil || got != "name box-1, give up" || answer.String() != "ok\n" {
		t.Fatalf("did %q, answer %q, error %v", got, answer.String(), err)
	}
}

func nothing() error { return nil }

func TestPauseSaysWhyTheNameCouldNotBeSet(t *testing.T) {
	var answer bytes.Buffer
	refused := errors.New("operation not permitted")
	if err := pause(strings.NewReader("box-1\n"), &answer, func([]byte) error { return refused }, nothing); !errors.Is(err, refused) {
		t.Fatalf("error %v", err)
	}
	if answer.String() != "operation not permitted\n" {
		t.Fatalf("answer %q", answer.String())
	}
}

func TestPauseEndsWhenNobodyCanNameItAnyMore(t *testing.T) {
	var answer bytes.Buffer
	if err := pause(strings.NewReader(""), &answer, func([]byte) error { return nil }, nothing); err == nil || answer.Len() > 0 {
		t.Fatalf("error %v, answer %q", err, answer.String())
	}
}
