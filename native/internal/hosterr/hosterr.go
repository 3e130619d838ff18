// Package hosterr holds the error codes that sandbox-host answers with; packages/server/src/node/host/host-error.ts documents each.
package hosterr

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Code names why a verb failed.
type Code string

// The closed set of codes.
const (
	InvalidArgument  Code = "invalid-argument"
	PathEscape       Code = "path-escape"
	EntryRefused     Code = "entry-refused"
	DigestMismatch   Code = "digest-mismatch"
	HostPathDenied   Code = "host-path-denied"
	NotFound         Code = "not-found"
	AlreadyExists    Code = "already-exists"
	Busy             Code = "busy"
	StartFailed      Code = "start-failed"
	RuntimeMissing   Code = "runtime-missing"
	Unsupported      Code = "unsupported"
	RulesRejected    Code = "rules-rejected"
	NoSpace          Code = "no-space"
	RuntimeFailed    Code = "runtime-failed"
	SaveFailed       Code = "save-failed"
	RestoreFailed    Code = "restore-failed"
	RestoreRefused   Code = "restore-refused"
	DeadlineExceeded Code = "deadline-exceeded"
	PermissionDenied Code = "permission-denied"
	Internal         Code = "internal"
)

// Error is an error with a code; Message is complete, Cause is for errors.Is.
type Error struct {
	Code    Code
	Message string
	Cause   error
}

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.Cause }

// New makes an error; a trailing error argument formatted with %v is kept as the cause.
func New(code Code, format string, args ...any) *Error {
	e := &Error{Code: code, Message: fmt.Sprintf(format, args...)}
	if len(args) > 0 {
		if cause, ok := args[len(args)-1].(error); ok {
			e.Cause = cause
		}
	}
	return e
}

// Of returns the code of any error: its own, or the one its system call's number stands for.
func Of(err error) Code {
	var coded *Error
	if errors.As(err, &coded) {
		return coded.Code
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return DeadlineExceeded
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return NoSpace
	case errors.Is(err, syscall.EBUSY):
		return Busy
	}
	return Internal
}

// Is reports whether an error carries the code.
func Is(err error, code Code) bool { return err != nil && Of(err) == code }
