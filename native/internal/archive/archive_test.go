package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// bench is a store with the node's directory beside it.
type bench struct {
	*Store
	t    *testing.T
	node string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	tree, err := confine.OpenTree(filepath.Join(dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	node := filepath.Join(dir, "node")
	if err := os.Mkdir(node, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := NewStore(tree, confine.Caller{Dir: node}, func(int64) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return &bench{Store: s, t: t, node: node}
}

// file has content at some places and holes elsewhere.
func (b *bench) file(label string, size int64, pieces map[int64][]byte) Item {
	b.t.Helper()
	f, err := os.CreateTemp(b.t.TempDir(), "item")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(size); err != nil {
		b.t.Fatal(err)
	}
	for at, content := range pieces {
		if _, err := f.WriteAt(content, at); err != nil {
			b.t.Fatal(err)
		}
	}
	return Item{Label: label, SizeBytes: size, File: f}
}

// errKilled stands for a helper that was killed before the files had their places.
var errKilled = errors.New("killed")

// noise does not compress.
func noise(seed uint64, size int) []byte {
	source := rand.NewChaCha8([32]byte{byte(seed)})
	content := make([]byte, size)
	_, _ = source.Read(content)
	return content
}

func (b *bench) partName(i int) string { return fmt.Sprintf("part-%d", i) }

// pack writes all parts and the entry.
func (b *bench) pack(id string, items []Item) (sealed []byte, parts int) {
	b.t.Helper()
	for {
		made, err := b.Pack(b.t.Context(), id, parts, b.partName(parts), items)
		if err != nil {
			b.t.Fatal(err)
		}
		parts++
		if made.Last {
			break
		}
	}
	sealed, err := b.Seal(id, json.RawMessage(`{"name":"a"}`))
	if err != nil {
		b.t.Fatal(err)
	}
	return sealed, parts
}

// unpack takes all parts and returns the files' content; one that was placed.
func (b *bench) unpack(u Unpacking) (contents [][]byte, err error) {
	b.t.Helper()
	next, isWhole, err := b.Next(u)
	if err != nil {
		return nil, err
	}
	for isDone := false; !isDone; {
		from := b.partName(next)
		if isWhole {
			from = ""
		}
		next, isDone, err = b.Unpack(b.t.Context(), u, next, from, func(files []confine.Entry) error {
			for _, file := range files {
				text, err := os.ReadFile(file.Path())
				if err != nil {
					return err
				}
				contents = append(contents, text)
			}
			return nil
		})
		if err != nil {
			return contents, err
		}
	}
	return contents, nil
}

func labelsOf(items []Item) (labels []string) {
	for _, item := range items {
		labels = append(labels, item.Label)
	}
	return labels
}

func (b *bench) expectSame(items []Item, contents [][]byte) {
	b.t.Helper()
	if len(contents) != len(items) {
		b.t.Fatalf("%d files came back of %d", len(contents), len(items))
	}
	for i, item := range items {
		want := make([]byte, item.SizeBytes)
		if _, err := item.File.ReadAt(want, 0); err != nil && item.SizeBytes > 0 {
			b.t.Fatal(err)
		}
		if !bytes.Equal(contents[i], want) {
			b.t.Errorf("%s is not what it was", item.Label)
		}
	}
}

func someItems(b *bench) []Item {
	return []Item{
		b.file("0/saved/pages.img", 40<<20, map[int64][]byte{0: noise(1, 9<<20), 20 << 20: bytes.Repeat([]byte("x"), 3<<20)}),
		b.file("1/writable/image", 8<<20, map[int64][]byte{1 << 20: []byte("a"), 7 << 20: []byte("b")}),
		b.file("2/volume/image", 1<<20, nil),
		b.file("3/volume/image", 0, nil),
	}
}

func TestFilesComeBackAsTheyWere(t *testing.T) {
	b := newBench(t)
	// More pieces than a chunk may have.
	many := map[int64][]byte{}
	for i := range int64(piecesMax + 10) {
		many[i*(gapMin+8192)] = []byte{byte(i), 1}
	}
	items := append(someItems(b), b.file("4/volume/image", 512<<20, many))
	sealed, parts := b.pack("one", items)
	if parts != 1 {
		t.Errorf("%d parts", parts)
	}
	contents, err := b.unpack(Unpacking{ID: "one", Sealed: sealed, Labels: labelsOf(items)})
	if err != nil {
		t.Fatal(err)
	}
	b.expectSame(items, contents)
	if text, err := os.ReadFile(filepath.Join(b.node, b.partName(0))); err != nil || bytes.Contains(text, []byte(strings.Repeat("x", 64))) {
		t.Errorf("the part is in the clear: %v", err)
	}
	if exists, err := b.unpackingDir("one").Exists(); exists || err != nil {
		t.Errorf("what was unpacked is still there: %v", err)
	}
}

func TestHolesStayHoles(t *testing.T) {
	b := newBench(t)
	items := []Item{b.file("0/volume/image", 1<<30, map[int64][]byte{512 << 20: noise(2, 1<<20), 700 << 20: make([]byte, 4<<20)})}
	sealed, _ := b.pack("one", items)
	u := Unpacking{ID: "one", Sealed: sealed, Labels: labelsOf(items)}
	if _, _, err := b.Next(u); err != nil {
		t.Fatal(err)
	}
	_, _, err := b.Unpack(t.Context(), u, 0, b.partName(0), func(files []confine.Entry) error {
		stat, err := files[0].Lstat()
		if err == nil && (stat.Size != 1<<30 || stat.Blocks*512 > 2<<20) {
			err = fmt.Errorf("%d bytes take %d", stat.Size, stat.Blocks*512)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAPartPackedAgainHasTheSameBytes(t *testing.T) {
	b := newBench(t)
	b.partBytes = 16 << 20
	items := []Item{b.file("0/volume/image", 30<<20, map[int64][]byte{0: noise(3, 21<<20)})}
	sealed, parts := b.pack("one", items)
	if parts != 2 {
		t.Fatalf("%d parts", parts)
	}
	for part := range parts {
		before, err := os.ReadFile(filepath.Join(b.node, b.partName(part)))
		if err != nil {
			t.Fatal(err)
		}
		packed, found, err := b.Packed("one", part)
		made, packErr := b.Pack(t.Context(), "one", part, "again", items)
		again, readErr := os.ReadFile(filepath.Join(b.node, "again"))
		if err := errors.Join(err, packErr, readErr); err != nil || !found || packed != made || !bytes.Equal(before, again) {
			t.Fatalf("part %d: %+v and %+v: %v", part, packed, made, err)
		}
	}
	// A helper that was killed after the first part goes on with the second.
	u := Unpacking{ID: "one", Sealed: sealed, Labels: labelsOf(items)}
	if _, _, err := b.Next(u); err != nil {
		t.Fatal(err)
	}
	if next, isDone, err := b.Unpack(t.Context(), u, 0, b.partName(0), nil); next != 1 || isDone || err != nil {
		t.Fatalf("%d %t %v", next, isDone, err)
	}
	if _, isDone, err := b.Unpack(t.Context(), u, 1, b.partName(1), func([]confine.Entry) error { return errKilled }); isDone || !errors.Is(err, errKilled) {
		t.Fatalf("%t %v", isDone, err)
	}
	if next, isWhole, err := b.Next(u); next != 2 || !isWhole || err != nil {
		t.Fatalf("%d %t %v", next, isWhole, err)
	}
	contents, err := b.unpack(u)
	if err != nil {
		t.Fatal(err)
	}
	b.expectSame(items, contents)
}

func TestWhatIsNotWhatWasWrittenIsRefused(t *testing.T) {
	b := newBench(t)
	b.partBytes = 16 << 20
	items := []Item{b.file("0/volume/image", 30<<20, map[int64][]byte{0: noise(4, 21<<20)})}
	sealed, _ := b.pack("one", items)
	whole := [2][]byte{}
	for i := range whole {
		text, err := os.ReadFile(filepath.Join(b.node, b.partName(i)))
		if err != nil {
			t.Fatal(err)
		}
		whole[i] = text
	}
	chunk := bytes.Clone(whole[0])
	frame := 4 + int(chunk[0])<<24 + int(chunk[1])<<16 + int(chunk[2])<<8 + int(chunk[3])
	// Two chunks of the same length in each other's place: noise has the same length everywhere.
	copy(chunk[frame:2*frame], whole[0][:frame])
	copy(chunk[:frame], whole[0][frame:2*frame])
	flipped := bytes.Clone(whole[0])
	flipped[len(flipped)/2] ^= 1
	for name, part := range map[string][]byte{
		"cut":                 whole[0][:len(whole[0])-1],
		"cut at a chunk":      whole[0][:frame],
		"longer":              append(bytes.Clone(whole[0]), 0),
		"a flipped bit":       flipped,
		"chunks exchanged":    chunk,
		"another part":        whole[1],
		"nothing":             {},
		"another part padded": append(bytes.Clone(whole[1]), make([]byte, len(whole[0])-len(whole[1]))...),
	} {
		if err := errors.Join(b.Forget("one"), os.WriteFile(filepath.Join(b.node, b.partName(0)), part, 0o600)); err != nil {
			t.Fatal(err)
		}
		contents, err := b.unpack(Unpacking{ID: "one", Sealed: sealed, Labels: labelsOf(items)})
		if !hosterr.Is(err, hosterr.DigestMismatch) || contents != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.node, b.partName(0)), whole[0], 0o600); err != nil {
		t.Fatal(err)
	}
	contents, err := b.unpack(Unpacking{ID: "one", Sealed: sealed, Labels: labelsOf(items)})
	if err != nil {
		t.Fatal(err)
	}
	b.expectSame(items, contents)
}

func TestAnEntryIsOfOneArchiveAndOneKey(t *testing.T) {
	b := newBench(t)
	items := someItems(b)
	entry, _ := b.pack("one", items)
	other, _ := b.pack("two", items)
	if index, err := b.Open("one", entry); err != nil || string(index.Entry) != `{"name":"a"}` {
		t.Fatalf("%s: %v", index.Entry, err)
	}
	if _, err := b.Open("two", entry); !hosterr.Is(err, hosterr.DigestMismatch) {
		t.Errorf("under another id: %v", err)
	}
	var mixed, foreign sealed
	if err := errors.Join(json.Unmarshal(entry, &mixed), json.Unmarshal(other, &foreign)); err != nil {
		t.Fatal(err)
	}
	mixed.Body = foreign.Body
	text, _ := json.Marshal(mixed)
	if _, err := b.Open("one", text); !hosterr.Is(err, hosterr.DigestMismatch) {
		t.Errorf("with the content of another: %v", err)
	}
	stranger := newBench(t)
	if _, err := stranger.Open("one", entry); !hosterr.Is(err, hosterr.NotFound) {
		t.Errorf("without the key: %v", err)
	}
	keys, err := b.keys.Read()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.keys.Import(keys); err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Open("one", entry); err != nil {
		t.Errorf("with the imported key: %v", err)
	}
}

func TestRotationKeepsWhatEntriesNeed(t *testing.T) {
	b := newBench(t)
	items := someItems(b)
	entry, _ := b.pack("one", items)
	first, err := b.keys.Current()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := b.keys.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	if keys, err := b.keys.Retire([]string{first.ID}); err != nil || len(keys.Keys) != 3 {
		t.Fatalf("%d keys: %v", len(keys.Keys), err)
	}
	rewrapped, err := b.keys.Rewrap("one", entry)
	if err != nil || bytes.Equal(rewrapped, entry) {
		t.Fatalf("the same entry: %v", err)
	}
	if again, err := b.keys.Rewrap("one", rewrapped); err != nil || !bytes.Equal(again, rewrapped) {
		t.Fatalf("another entry: %v", err)
	}
	if keys, err := b.keys.Retire(nil); err != nil || len(keys.Keys) != 2 || keys.find(first.ID) != nil {
		t.Fatalf("%d keys: %v", len(keys.Keys), err)
	}
	if _, err := b.Open("one", entry); !hosterr.Is(err, hosterr.NotFound) {
		t.Errorf("the entry of a key that is gone: %v", err)
	}
	contents, err := b.unpack(Unpacking{ID: "one", Sealed: rewrapped, Labels: labelsOf(items)})
	if err != nil {
		t.Fatal(err)
	}
	b.expectSame(items, contents)
}

func TestKeysThatCannotBeReadAreNotReplaced(t *testing.T) {
	b := newBench(t)
	if err := b.keys.file().WriteFile([]byte(`{"version":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.keys.Current(); err == nil {
		t.Error("a key was made over them")
	}
	if _, err := b.keys.Rotate(); err == nil {
		t.Error("a key was made beside them")
	}
	if text, err := b.keys.file().ReadFile(100); err != nil || string(text) != `{"version":1}` {
		t.Errorf("%s: %v", text, err)
	}
}

func TestKeysAreRootsAlone(t *testing.T) {
	b := newBench(t)
	if _, err := b.keys.Current(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{"": unix.S_IFDIR | 0o700, "keys.json": unix.S_IFREG | 0o600} {
		if stat, err := b.dir.In(name).Lstat(); err != nil || stat.Mode != want {
			t.Errorf("%q: %o: %v", name, stat.Mode, err)
		}
	}
}

func TestOtherFilesUnderAnIdAreRefused(t *testing.T) {
	b := newBench(t)
	items := someItems(b)
	sealed, _ := b.pack("one", items)
	if _, err := b.Pack(t.Context(), "one", 0, "again", items[:1]); !hosterr.Is(err, hosterr.AlreadyExists) {
		t.Errorf("packed: %v", err)
	}
	if _, _, err := b.Next(Unpacking{ID: "one", Sealed: sealed, Labels: labelsOf(items[:1])}); !hosterr.Is(err, hosterr.InvalidArgument) {
		t.Errorf("unpacked: %v", err)
	}
}

func TestNothingBeginsWithoutRoom(t *testing.T) {
	b := newBench(t)
	items := someItems(b)
	sealed, _ := b.pack("one", items)
	full := hosterr.New(hosterr.NoSpace, "full")
	b.room = func(int64) error { return full }
	if _, err := b.Pack(t.Context(), "two", 0, "part", items); !errors.Is(err, full) {
		t.Errorf("packed: %v", err)
	}
	if _, _, err := b.Next(Unpacking{ID: "one", Sealed: sealed, Labels: labelsOf(items)}); !errors.Is(err, full) {
		t.Errorf("unpacked: %v", err)
	}
	if exists, err := b.unpackingDir("one").Exists(); exists || err != nil {
		t.Errorf("files were made: %v", err)
	}
}
