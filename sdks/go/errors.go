package sandbox

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"agent-sandbox.dev/sdk/errorcode"
	"connectrpc.com/connect"
)

// Error is every error that this SDK makes; a cancelled call returns its context's error instead.
type Error struct {
	// Code never changes its meaning; the words may.
	Code    errorcode.Code
	Message string
	// RequestID is the id under which server logs know the request, where one was sent.
	RequestID string
	// Limit is the limit that ended the sandbox and with it the process: "OOMKilled", "PidLimitReached" or "Evicted"; empty where none did.
	Limit string
	// Err is what lay underneath.
	Err error
	// unsent says that no sandbox has seen the request, which may be sent again then, whatever it asks for.
	unsent bool
}

// A message that says itself what to do needs no second advice.
var advice = regexp.MustCompile("; (start|run|name|use|resume|let) ")

// Error says what went wrong and what to do about it; Message and Hint have the two apart.
func (e *Error) Error() string {
	// How a command ended is for its author to mend.
	if e.Code == errorcode.CommandFailed || advice.MatchString(e.Message) {
		return e.Message
	}
	return e.Message + ". " + e.Hint()
}

// Unwrap gives what lay underneath.
func (e *Error) Unwrap() error { return e.Err }

// Hint says what to do about it, in one sentence.
func (e *Error) Hint() string { return errorcode.Facts[e.Code].Hint }

// IsRetryable says whether the same call may succeed later. It does not say that repeating it is harmless.
func (e *Error) IsRetryable() bool { return errorcode.Facts[e.Code].Retry }

// CodeOf is the code of an error of this SDK, or empty for any other.
func CodeOf(err error) errorcode.Code {
	var own *Error
	if errors.As(err, &own) {
		return own.Code
	}
	return ""
}

// ExitError is a command that failed or ran out of time, in the manner of exec.ExitError.
type ExitError struct {
	ExitStatus
	// Stderr is the end of what it printed there, where Cmd.Stderr was not set.
	Stderr []byte
	err    *Error
}

// Error says what went wrong.
func (e *ExitError) Error() string { return e.err.Error() }

// Unwrap gives the plain error, which has the code.
func (e *ExitError) Unwrap() error { return e.err }

func newError(code errorcode.Code, format string, values ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, values...)}
}

func wrapError(code errorcode.Code, err error, format string, values ...any) *Error {
	cause := err.Error()
	var own *Error
	if errors.As(err, &own) {
		// One advice, for the outer code, is enough.
		cause = own.Message
	}
	return &Error{Code: code, Message: fmt.Sprintf(format, values...) + ": " + cause, Err: err}
}

func codeOfStatus(status int) errorcode.Code {
	if code, known := errorcode.OfHTTPStatus[status]; known {
		return code
	}
	if status >= 500 {
		return errorcode.Internal
	}
	return errorcode.ProtocolError
}

// callError turns what a call to sandboxd returned into ours; a cancellation stays what it is.
func callError(ctx context.Context, err error) error {
	var own *Error
	var wire *connect.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &wire) && connect.IsWireError(err) && wire.Code() != connect.CodeCanceled:
		code, known := errorcode.OfGRPCStatus[uint32(wire.Code())]
		if !known {
			code = errorcode.Internal
		}
		return &Error{Code: code, Message: wire.Message(), RequestID: wire.Meta().Get("X-Request-Id"), Err: err}
	}
	return wrapError(errorcode.ConnectionLost, err, "the connection to the sandbox broke")
}

// fileError turns the codes of plain requests into what they mean when they are about files.
func fileError(ctx context.Context, err error) error {
	err = callError(ctx, err)
	var own *Error
	if !errors.As(err, &own) {
		return err
	}
	changed := *own
	switch own.Code {
	case errorcode.AlreadyExists:
		changed.Code = errorcode.FileExists
	case errorcode.QuotaExceeded:
		changed.Code = errorcode.NoSpace
	default:
		return err
	}
	return &changed
}

func trimTail(text string, charsMax int) string {
	text = strings.TrimSpace(text)
	if len(text) > charsMax {
		return text[len(text)-charsMax:]
	}
	return text
}
