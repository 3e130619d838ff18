package sparse

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestImageTellsWhereItsHolesAre(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const size, block = 8 << 20, 4096
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	first, second := bytes.Repeat([]byte("a"), block), bytes.Repeat([]byte("b"), block)
	for at, content := range map[int64][]byte{1 << 20: first, 4 << 20: second} {
		if _, err := file.WriteAt(content, at); err != nil {
			t.Fatal(err)
		}
	}
	image, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	n, err := image.WriteTo(&written)
	if err != nil || n != image.EncodedBytes() || n != int64(written.Len()) {
		t.Fatalf("wrote %d of %d: %v", n, image.EncodedBytes(), err)
	}
	want := []byte("3\n1048576\n4096\n4194304\n4096\n8388608\n0\n")
	if head := written.Next(512); !bytes.Equal(bytes.TrimRight(head, "\x00"), want) {
		t.Fatalf("the list is %q, expected %q", head, want)
	}
	if !bytes.Equal(written.Bytes(), append(first, second...)) || image.SizeBytes() != size {
		t.Fatal("the pieces are not what the file has")
	}
}

func TestSmallHolesAreWrittenAsZeros(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, at := range []int64{0, gapMin - 4096} {
		if _, err := file.WriteAt([]byte("x"), at); err != nil {
			t.Fatal(err)
		}
	}
	image, err := Open(file)
	if err != nil || len(image.extents) != 2 || image.extents[0].size != image.size {
		t.Fatalf("%+v: %v", image, err)
	}
}
