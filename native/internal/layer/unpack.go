package layer

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
	xattrRecord    = "SCHILY.xattr."
	// An image of a whole distribution has about half a million entries; ten times that is not an image.
	entriesMax = 5_000_000
)

// unpacker writes the entries of one archive below root. Every name is resolved by openat2 with root as the root directory, so that neither
// `..` nor any symbolic link of the archive, absolute or not, leads outside.
type unpacker struct {
	root     *os.File
	bytes    int64
	bytesMax int64
	files    int
	// Directories get their times last: writing into them changes them.
	dirTimes map[string]time.Time
}

func (u *unpacker) unpack(ctx context.Context, archive *tar.Reader) error {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return u.setDirTimes()
		}
		if err != nil {
			return hosterr.New(hosterr.EntryRefused, "layer is not a readable tar: %v", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if u.files++; u.files > entriesMax {
			return hosterr.New(hosterr.NoSpace, "layer has more than %d entries", entriesMax)
		}
		if err := u.entry(header, archive); err != nil {
			return err
		}
	}
}

func (u *unpacker) entry(header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	for _, part := range strings.Split(header.Name, "/") {
		if part == ".." {
			return hosterr.New(hosterr.PathEscape, "layer entry %q leads outside", header.Name)
		}
	}
	name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
	if name == "" {
		return u.applyToDir(u.root, header)
	}
	parent, err := u.openParent(path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	base := path.Base(name)
	if strings.HasPrefix(base, whiteoutPrefix) {
		return whiteout(parent, base)
	}
	return u.create(parent, base, name, header, content)
}

func (u *unpacker) create(parent *os.File, base, name string, header *tar.Header, content io.Reader) error {
	switch header.Typeflag {
	case tar.TypeDir:
		return u.dir(parent, base, name, header)
	case tar.TypeReg:
		return u.file(parent, base, header, content)
	case tar.TypeSymlink:
		if err := clearName(parent, base); err != nil {
			return err
		}
		if err := unix.Symlinkat(header.Linkname, int(parent.Fd()), base); err != nil {
			return pathError("symlinkat", name, err)
		}
	case tar.TypeLink:
		return u.hardLink(parent, base, name, header)
	case tar.TypeFifo:
		if err := clearName(parent, base); err != nil {
			return err
		}
		if err := unix.Mknodat(int(parent.Fd()), base, unix.S_IFIFO|0o600, 0); err != nil {
			return pathError("mknodat", name, err)
		}
	case tar.TypeChar, tar.TypeBlock:
		return hosterr.New(hosterr.EntryRefused, "layer entry %q is a device node", header.Name)
	default:
		return hosterr.New(hosterr.EntryRefused, "layer entry %q has the unknown type %q", header.Name, header.Typeflag)
	}
	return setAttributes(parent, base, header)
}

func (u *unpacker) dir(parent *os.File, base, name string, header *tar.Header) error {
	err := unix.Mkdirat(int(parent.Fd()), base, 0o700)
	if errors.Is(err, unix.EEXIST) {
		var stat unix.Stat_t
		if err := unix.Fstatat(int(parent.Fd()), base, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return pathError("fstatat", name, err)
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			if err := clearName(parent, base); err != nil {
				return err
			}
			err = unix.Mkdirat(int(parent.Fd()), base, 0o700)
		} else {
			err = nil
		}
	}
	if err != nil {
		return pathError("mkdirat", name, err)
	}
	u.dirTimes[name] = header.ModTime
	return setAttributes(parent, base, header)
}

func (u *unpacker) file(parent *os.File, base string, header *tar.Header, content io.Reader) error {
	if u.bytes += header.Size; u.bytes > u.bytesMax {
		return hosterr.New(hosterr.NoSpace, "layer unpacks to more than %d bytes", u.bytesMax)
	}
	if err := clearName(parent, base); err != nil {
		return err
	}
	fd, err := unix.Openat(int(parent.Fd()), base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return pathError("openat", header.Name, err)
	}
	f := os.NewFile(uintptr(fd), header.Name)
	_, err = io.Copy(f, content)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return setAttributes(parent, base, header)
}

func (u *unpacker) hardLink(parent *os.File, base, name string, header *tar.Header) error {
	target := path.Clean("/" + header.Linkname)
	source, err := confine.OpenAt(u.root, target, unix.O_PATH|unix.O_NOFOLLOW, 0, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return hosterr.New(hosterr.EntryRefused, "layer entry %q links to %q, which is not in the layer: %v", header.Name, header.Linkname, err)
	}
	defer source.Close()
	if err := clearName(parent, base); err != nil {
		return err
	}
	if err := unix.Linkat(int(source.Fd()), "", int(parent.Fd()), base, unix.AT_EMPTY_PATH); err != nil {
		return pathError("linkat", name, err)
	}
	return nil
}

// openParent opens a directory of the layer and makes the ones on the way that the archive left out.
func (u *unpacker) openParent(name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY
	const resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	dir, err := confine.OpenAt(u.root, name, flags, 0, resolve)
	if err == nil || !errors.Is(err, unix.ENOENT) {
		return dir, err
	}
	above, err := u.openParent(path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer above.Close()
	if err := unix.Mkdirat(int(above.Fd()), path.Base(name), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, pathError("mkdirat", name, err)
	}
	return confine.OpenAt(u.root, name, flags, 0, resolve)
}

func (u *unpacker) applyToDir(dir *os.File, header *tar.Header) error {
	if header.Typeflag != tar.TypeDir {
		return hosterr.New(hosterr.EntryRefused, "layer entry %q is the root and not a directory", header.Name)
	}
	if err := dir.Chown(header.Uid, header.Gid); err != nil {
		return err
	}
	return unix.Fchmod(int(dir.Fd()), uint32(header.Mode)&0o7777)
}

func (u *unpacker) setDirTimes() error {
	for name, modified := range u.dirTimes {
		dir, err := confine.OpenAt(u.root, name, unix.O_PATH|unix.O_NOFOLLOW, 0, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		stamp := unix.NsecToTimespec(modified.UnixNano())
		err = unix.UtimesNanoAt(unix.AT_FDCWD, confine.ProcPath(dir), []unix.Timespec{stamp, stamp}, 0)
		dir.Close()
		if err != nil {
			return pathError("utimensat", name, err)
		}
	}
	return nil
}

// whiteout turns the archive's marks for "deleted below" into overlayfs's own.
func whiteout(parent *os.File, base string) error {
	switch {
	case base == whiteoutOpaque:
		return pathError("fsetxattr", base, unix.Fsetxattr(int(parent.Fd()), "trusted.overlay.opaque", []byte("y"), 0))
	case strings.HasPrefix(base, whiteoutMeta):
		return nil
	}
	name := strings.TrimPrefix(base, whiteoutPrefix)
	if name == "" || name == "." || name == ".." {
		return hosterr.New(hosterr.EntryRefused, "layer entry %q is not a whiteout", base)
	}
	if err := clearName(parent, name); err != nil {
		return err
	}
	return pathError("mknodat", base, unix.Mknodat(int(parent.Fd()), name, unix.S_IFCHR, 0))
}

// clearName removes what an earlier entry of the archive left under this name.
func clearName(parent *os.File, base string) error {
	err := unix.Unlinkat(int(parent.Fd()), base, 0)
	if errors.Is(err, unix.EISDIR) {
		// The parent is an open descriptor inside the layer and base has no separator, so that this cannot leave it.
		return os.RemoveAll(confine.ProcPath(parent) + "/" + base)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return pathError("unlinkat", base, err)
}

func setAttributes(parent *os.File, base string, header *tar.Header) error {
	if err := unix.Fchownat(int(parent.Fd()), base, header.Uid, header.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return pathError("fchownat", header.Name, err)
	}
	if header.Typeflag != tar.TypeSymlink {
		if err := unix.Fchmodat(int(parent.Fd()), base, uint32(header.Mode)&0o7777, 0); err != nil {
			return pathError("fchmodat", header.Name, err)
		}
		if err := setXattrs(parent, base, header); err != nil {
			return err
		}
	}
	stamp := unix.NsecToTimespec(header.ModTime.UnixNano())
	return pathError("utimensat", header.Name, unix.UtimesNanoAt(int(parent.Fd()), base, []unix.Timespec{stamp, stamp}, unix.AT_SYMLINK_NOFOLLOW))
}

// setXattrs keeps file capabilities and user attributes. `trusted.overlay.*` would let a layer redirect lookups outside itself, and labels of
// the machine that built the image mean nothing here.
func setXattrs(parent *os.File, base string, header *tar.Header) error {
	for record, value := range header.PAXRecords {
		name, found := strings.CutPrefix(record, xattrRecord)
		if !found || (name != "security.capability" && !strings.HasPrefix(name, "user.")) {
			continue
		}
		if err := unix.Lsetxattr(confine.ProcPath(parent)+"/"+base, name, []byte(value), 0); err != nil {
			return pathError("setxattr "+name, header.Name, err)
		}
	}
	return nil
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}
