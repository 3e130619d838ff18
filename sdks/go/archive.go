package sandbox

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
)

// Upload copies a directory's contents, or one file under its own name, of this machine into a directory there.
func (f *Files) Upload(ctx context.Context, local, remote string) error {
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(pack(local, writer)) }()
	response, err := f.send(ctx, http.MethodPut, remote, fileRequest{url.Values{"extract": {"tar"}}, reader, map[string]string{"Content-Type": "application/x-tar"}})
	// Ends the packing of a request that was given up.
	reader.CloseWithError(io.ErrClosedPipe)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func pack(local string, to io.Writer) error {
	archive := tar.NewWriter(to)
	info, err := os.Stat(local)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = archive.AddFS(os.DirFS(local))
	} else {
		err = packFile(archive, local, info)
	}
	return errors.Join(err, archive.Close())
}

func packFile(archive *tar.Writer, local string, info os.FileInfo) error {
	header, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	file, err := os.Open(local)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(archive, file)
	return err
}

// Download copies a directory's contents, or one file under its own name, into a directory of this machine.
func (f *Files) Download(ctx context.Context, remote, local string) error {
	response, err := f.send(ctx, http.MethodGet, remote, fileRequest{query: url.Values{"format": {"tar"}}})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := os.MkdirAll(local, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return err
	}
	defer root.Close()
	return unpack(tar.NewReader(response.Body), root)
}

// unpack trusts nothing: the archive is made by untrusted code, so every path is opened below the root.
func unpack(archive *tar.Reader, root *os.Root) error {
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(filepath.FromSlash(header.Name))
		if name == "." {
			continue
		}
		if err := unpackEntry(archive, root, name, header); err != nil {
			return err
		}
	}
}

func unpackEntry(archive *tar.Reader, root *os.Root, name string, header *tar.Header) error {
	mode := header.FileInfo().Mode().Perm()
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeReg:
		file, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, archive)
		return errors.Join(err, file.Close())
	}
	// Devices and the like are nothing that a download should make.
	return nil
}
