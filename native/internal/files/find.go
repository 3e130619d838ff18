package files

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// errEnough ends a walk that has found all it may.
var errEnough = errors.New("enough found")

// Glob finds paths by pattern below a directory; an absolute pattern starts at the root.
func (s *Space) Glob(ctx context.Context, directory, pattern string, limit int) (found []Info, truncated bool, err error) {
	compiled, err := compilePattern(pattern)
	if err != nil {
		return nil, false, err
	}
	if path.IsAbs(pattern) {
		directory = "/"
	}
	if directory == "" {
		directory = "."
	}
	err = s.Walk(directory, func(_ *os.File, relative string, entry *Info) (bool, error) {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		full, prefix := compiled.match(relative)
		if full {
			if len(found) == limit {
				truncated = true
				return false, errEnough
			}
			found = append(found, *entry)
		}
		return prefix, nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return found, truncated, err
}

// SearchOptions say what to search for and where.
type SearchOptions struct {
	Pattern             string
	IgnoreCase, Literal bool
	Include, Exclude    []string
	Limit               int
}

// Match is one line that matched; Line and Column count from 1.
type Match struct {
	Path   string
	Line   uint64
	Column int
	Text   string
}

// SearchSummary says what a search did.
type SearchSummary struct {
	Searched, Skipped, Matches uint64
	Truncated                  bool
}

// Bounds of a search: how much of a file decides whether it is binary, how long a line may be, how much of it is shown.
const (
	binaryProbeBytes = 8 << 10
	lineBytesMax     = 1 << 20
	shownBytesMax    = 4 << 10
)

type search struct {
	ctx     context.Context
	options SearchOptions
	regexp  *regexp.Regexp
	include []*pattern
	exclude []*pattern
	report  func(Match) error
	summary SearchSummary
}

// Search finds lines in the text files below a directory, or in one file.
func (s *Space) Search(ctx context.Context, name string, options SearchOptions, report func(Match) error) (SearchSummary, error) {
	run, err := newSearch(ctx, options, report)
	if err != nil {
		return SearchSummary{}, err
	}
	file, info, err := s.Open(name)
	if err != nil {
		return SearchSummary{}, err
	}
	defer file.Close()
	if info.IsDirectory() {
		err = walk(file, info.Path, "", 0, run.visit)
	} else {
		err = run.file(file, info.Path)
	}
	if errors.Is(err, errEnough) {
		run.summary.Truncated, err = true, nil
	}
	return run.summary, err
}

func newSearch(ctx context.Context, options SearchOptions, report func(Match) error) (*search, error) {
	expression := options.Pattern
	if options.Literal {
		expression = regexp.QuoteMeta(expression)
	}
	if options.IgnoreCase {
		expression = "(?i)" + expression
	}
	compiled, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrBadPattern, err)
	}
	run := &search{ctx: ctx, options: options, regexp: compiled, report: report}
	for _, text := range options.Include {
		one, err := compilePattern(text)
		if err != nil {
			return nil, err
		}
		run.include = append(run.include, one)
	}
	for _, text := range options.Exclude {
		one, err := compilePattern(text)
		if err != nil {
			return nil, err
		}
		run.exclude = append(run.exclude, one)
	}
	return run, nil
}

func (r *search) visit(directory *os.File, _ string, entry *Info) (bool, error) {
	if r.ctx.Err() != nil {
		return false, context.Cause(r.ctx)
	}
	if anyMatches(r.exclude, entry.Name) {
		return false, nil
	}
	if entry.IsDirectory() {
		return true, nil
	}
	if !entry.IsRegular() || len(r.include) > 0 && !anyMatches(r.include, entry.Name) {
		return false, nil
	}
	file, err := openChild(directory, entry.Name, unix.O_RDONLY)
	if err != nil {
		r.summary.Skipped++
		return false, nil
	}
	defer file.Close()
	return false, r.file(file, entry.Path)
}

func anyMatches(patterns []*pattern, name string) bool {
	for _, one := range patterns {
		if full, _ := one.match(name); full {
			return true
		}
	}
	return false
}

func (r *search) file(file *os.File, at string) error {
	reader := bufio.NewReaderSize(file, binaryProbeBytes)
	if probe, _ := reader.Peek(binaryProbeBytes); bytes.IndexByte(probe, 0) >= 0 {
		r.summary.Skipped++
		return nil
	}
	r.summary.Searched++
	lines := bufio.NewScanner(reader)
	lines.Buffer(make([]byte, 0, binaryProbeBytes), lineBytesMax)
	for number := uint64(1); lines.Scan(); number++ {
		where := r.regexp.FindIndex(lines.Bytes())
		if where == nil {
			continue
		}
		if r.summary.Matches == uint64(r.options.Limit) {
			return errEnough
		}
		r.summary.Matches++
		if err := r.report(Match{Path: at, Line: number, Column: where[0] + 1, Text: shown(lines.Bytes())}); err != nil {
			return err
		}
	}
	return nil
}

func shown(line []byte) string {
	line = line[:min(len(line), shownBytesMax)]
	if utf8.Valid(line) {
		return string(line)
	}
	return strings.ToValidUTF8(string(line), "\uFFFD")
}

// Checksum digests a plain file; algorithm defaults to sha256.
func (s *Space) Checksum(ctx context.Context, name, algorithm string) (digest, used string, size int64, err error) {
	algorithms := map[string]func() hash.Hash{"": sha256.New, "sha256": sha256.New, "sha512": sha512.New, "sha1": sha1.New, "md5": md5.New}
	make, ok := algorithms[algorithm]
	if !ok {
		return "", "", 0, ErrBadAlgorithm
	}
	if algorithm == "" {
		algorithm = "sha256"
	}
	file, info, err := s.Open(name)
	if err != nil {
		return "", "", 0, err
	}
	defer file.Close()
	if info.IsDirectory() {
		return "", "", 0, ErrIsDirectory
	}
	state := make()
	buffer := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buffer)
	size, err = io.CopyBuffer(struct{ io.Writer }{state}, contextReader{ctx, file}, *buffer)
	return hex.EncodeToString(state.Sum(nil)), algorithm, size, err
}

// contextReader stops a long read when its caller has gone.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}
