package daemon

import (
	"crypto/sha256"
	"crypto/subtle"
	"os"
	"strings"
	"sync"
	"time"
)

// tokenCheckEvery is how long a changed token file may go unnoticed.
const tokenCheckEvery = time.Second

// Token is a bearer token kept in a file. Each line is a valid token, so that an old and a new one can both be accepted
// while clients change over. A file that cannot be read accepts no token.
type Token struct {
	file string
	now  func() time.Time

	mu      sync.Mutex
	checked time.Time
	changed time.Time
	size    int64
	digests [][sha256.Size]byte
}

// NewToken reads tokens from a file, and again when it changes.
func NewToken(file string, now func() time.Time) *Token { return &Token{file: file, now: now} }

// Allows says whether an Authorization header carries a valid token. A nil Token allows everything.
func (t *Token) Allows(header string) bool {
	if t == nil {
		return true
	}
	token, ok := parseBearer(header)
	if !ok {
		return false
	}
	given := sha256.Sum256([]byte(token))
	valid := 0
	for _, digest := range t.current() {
		valid |= subtle.ConstantTimeCompare(given[:], digest[:])
	}
	return valid == 1
}

// parseBearer reads "Bearer <token>"; the scheme's case does not matter.
func parseBearer(header string) (string, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.Trim(token, " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}

func (t *Token) current() [][sha256.Size]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if now.Sub(t.checked) < tokenCheckEvery {
		return t.digests
	}
	t.checked = now
	info, err := os.Stat(t.file)
	if err != nil {
		t.digests, t.changed = nil, time.Time{}
		return nil
	}
	if info.ModTime().Equal(t.changed) && info.Size() == t.size {
		return t.digests
	}
	text, err := os.ReadFile(t.file)
	if err != nil {
		t.digests, t.changed = nil, time.Time{}
		return nil
	}
	t.changed, t.size, t.digests = info.ModTime(), info.Size(), nil
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			t.digests = append(t.digests, sha256.Sum256([]byte(line)))
		}
	}
	return t.digests
}
