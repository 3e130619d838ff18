package files

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/beneath"
	"golang.org/x/sys/unix"
)

// PackArchive writes a tar archive of what a path names: a directory's contents, or one file under its own name.
func (s *Space) PackArchive(ctx context.Context, name string, to io.Writer) error {
	file, info, err := s.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	archive := tar.NewWriter(to)
	if info.IsDirectory() {
		err = walk(file, info.Path, "", 0, func(directory *os.File, relative string, entry *Info) (bool, error) {
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			return true, packEntry(archive, directory, relative, entry)
		})
	} else {
		err = packFile(archive, file, info.Name, &info)
	}
	return errors.Join(err, archive.Close())
}

func packEntry(archive *tar.Writer, directory *os.File, relative string, entry *Info) error {
	if entry.IsRegular() {
		file, err := openChild(directory, entry.Name, unix.O_RDONLY)
		if err != nil {
			// What cannot be read, or has gone, cannot be packed.
			return nil
		}
		defer file.Close()
		return packFile(archive, file, relative, entry)
	}
	header := headerOf(relative, entry)
	switch {
	case entry.IsDirectory():
		header.Typeflag, header.Name = tar.TypeDir, relative+"/"
	case entry.IsLink():
		header.Typeflag, header.Linkname = tar.TypeSymlink, entry.LinkTarget
	default:
		return nil
	}
	return archive.WriteHeader(header)
}

// packFile packs exactly as many bytes as the header promises, also when the file changes meanwhile.
func packFile(archive *tar.Writer, file *os.File, relative string, entry *Info) error {
	if err := unix.Fstat(int(file.Fd()), &entry.Stat); err != nil {
		return err
	}
	header := headerOf(relative, entry)
	header.Typeflag, header.Size = tar.TypeReg, entry.Stat.Size
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	n, err := io.Copy(archive, io.LimitReader(file, header.Size))
	if err != nil {
		return err
	}
	_, err = io.CopyN(archive, zeros{}, header.Size-n)
	return err
}

func headerOf(relative string, entry *Info) *tar.Header {
	return &tar.Header{
		Name: relative, Mode: int64(entry.Mode()), Uid: int(entry.Stat.Uid), Gid: int(entry.Stat.Gid),
		ModTime: entry.ModifiedAt().Truncate(time.Second), Format: tar.FormatPAX,
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// UnpackOptions say how to unpack.
type UnpackOptions struct {
	// PreserveOwner gives files the owner the archive names; needs root.
	PreserveOwner bool
}

// UnpackArchive unpacks a tar archive, plain or gzip, into a directory, which is made if needed. No entry can leave the
// directory, by name or by link. Devices and FIFOs are refused.
func (s *Space) UnpackArchive(name string, body io.Reader, options UnpackOptions) (entries int, err error) {
	info, err := s.MakeDir(name, 0o755, true)
	if err != nil {
		return 0, err
	}
	root, err := beneath.New(info.Path, "")
	if err != nil {
		return 0, err
	}
	plain, err := decompress(body)
	if err != nil {
		return 0, err
	}
	inside, archive := NewSpace(root), tar.NewReader(plain)
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return entries, nil
		}
		if err != nil {
			return entries, fmt.Errorf("%w: %v", ErrBadArchive, err)
		}
		if err := inside.unpack(header, archive, options); err != nil {
			return entries, fmt.Errorf("%s: %w", header.Name, err)
		}
		entries++
	}
}

func decompress(body io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(body, copyBytes)
	magic, _ := buffered.Peek(2)
	if len(magic) < 2 || magic[0] != 0x1f || magic[1] != 0x8b {
		return buffered, nil
	}
	plain, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrBadArchive, err)
	}
	return plain, nil
}

func (s *Space) unpack(header *tar.Header, body io.Reader, options UnpackOptions) error {
	name := strings.TrimLeft(header.Name, "/")
	mode := uint32(header.Mode) & 0o7777
	switch header.Typeflag {
	case tar.TypeReg:
		if _, err := s.Write(name, body, WriteOptions{Mode: &mode}); err != nil {
			return err
		}
	case tar.TypeDir:
		if _, err := s.MakeDir(name, mode, true); err != nil {
			return err
		}
	case tar.TypeSymlink:
		return s.unpackLink(name, func(place *beneath.Place) error {
			return unix.Symlinkat(header.Linkname, place.Directory(), place.Name)
		})
	case tar.TypeLink:
		return s.unpackHardLink(name, strings.TrimLeft(header.Linkname, "/"))
	case tar.TypeXGlobalHeader:
		return nil
	default:
		return fmt.Errorf("%w: entries of type %q are refused", ErrBadArchive, header.Typeflag)
	}
	return s.finishUnpacked(name, header, options)
}

func (s *Space) finishUnpacked(name string, header *tar.Header, options UnpackOptions) error {
	place, err := s.existing(name, true)
	if err != nil {
		return err
	}
	defer place.Close()
	if options.PreserveOwner {
		if err := unix.Fchownat(place.Directory(), place.Name, header.Uid, header.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	when := unix.NsecToTimespec(header.ModTime.UnixNano())
	return unix.UtimesNanoAt(place.Directory(), place.Name, []unix.Timespec{when, when}, unix.AT_SYMLINK_NOFOLLOW)
}

// unpackLink makes a name that is not a directory, replacing what was there.
func (s *Space) unpackLink(name string, link func(*beneath.Place) error) error {
	place, err := s.Root.Resolve(name, false)
	if err != nil {
		return err
	}
	defer place.Close()
	if place.IsDirectory() {
		return ErrIsDirectory
	}
	if err := place.MakeParents(0o755); err != nil {
		return err
	}
	if place.Exists {
		if err := unix.Unlinkat(place.Directory(), place.Name, 0); err != nil {
			return err
		}
	}
	return link(place)
}

func (s *Space) unpackHardLink(name, target string) error {
	source, err := s.existing(path.Clean(target), false)
	if err != nil {
		return err
	}
	defer source.Close()
	if source.Stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return ErrBadArchive
	}
	return s.unpackLink(name, func(place *beneath.Place) error {
		return unix.Linkat(source.Directory(), source.Name, place.Directory(), place.Name, 0)
	})
}
