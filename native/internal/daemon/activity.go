package daemon

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// kind sorts requests for the counters; a closed set.
type kind int

const (
	kindProcess kind = iota
	kindFile
	kindLegacy
	kindOther
	kinds
)

var kindNames = [kinds]string{"process", "file", "legacy", "other"}

func kindOf(path string) kind {
	switch {
	case strings.Contains(path, ".ProcessService/"):
		return kindProcess
	case strings.HasPrefix(path, "/v1/f"), strings.Contains(path, ".FileService/"), strings.Contains(path, ".FileWatcherService/"):
		return kindFile
	case strings.HasPrefix(path, "/v1/"), strings.HasPrefix(path, "/grpc."):
		return kindOther
	}
	return kindLegacy
}

// Activity counts requests, so that an idle sandbox can be told from a busy one.
type Activity struct {
	open  atomic.Int64
	last  atomic.Int64
	total [kinds]atomic.Uint64
	rest  *time.Timer
	// answered is called after the first request.
	answered func()
	first    sync.Once
}

// restAfter is how long nothing must have happened before memory is given back.
const restAfter = 5 * time.Second

// NewActivity starts counting; the start itself counts as activity. Whenever nothing has happened for a while, rest is called, and
// answered, which may be nil, when the first request is over.
func NewActivity(rest, answered func()) *Activity {
	a := &Activity{answered: answered}
	a.rest = time.AfterFunc(restAfter, func() {
		if a.Open() == 0 {
			rest()
		}
	})
	a.touch()
	return a
}

func (a *Activity) touch() { a.last.Store(time.Now().UnixNano()) }

// begin counts a request; the returned function ends it.
func (a *Activity) begin(kind kind) func() {
	a.touch()
	a.open.Add(1)
	a.total[kind].Add(1)
	return func() {
		a.touch()
		if a.open.Add(-1) == 0 {
			a.rest.Reset(restAfter)
		}
		a.first.Do(func() {
			if a.answered != nil {
				// Not in the way of the answer, whose last bytes leave when the handler returns.
				go a.answered()
			}
		})
	}
}

// LastAt is when the last request began or ended.
func (a *Activity) LastAt() time.Time { return time.Unix(0, a.last.Load()) }

// Open is how many requests, streams included, are being answered.
func (a *Activity) Open() int64 { return a.open.Load() }
