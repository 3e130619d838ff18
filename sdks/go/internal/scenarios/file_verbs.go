package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	sandbox "agent-sandbox.dev/sdk"
)

func pathOf(s step) string {
	if encoded, has := s["pathBase64"]; has {
		decoded, _ := base64.StdEncoding.DecodeString(encoded.(string))
		return string(decoded)
	}
	return text(s, "path")
}

func (w *world) writeFile(ctx context.Context, s step) (result, error) {
	content := []byte(text(s, "text"))
	if encoded, has := s["base64"]; has {
		content, _ = base64.StdEncoding.DecodeString(encoded.(string))
	}
	if size := int(number(s, "sizeBytes")); size > 0 {
		content = make([]byte, size)
	}
	options := sandbox.WriteFileOptions{Mode: fs.FileMode(number(s, "mode")), Append: truth(s, "append")}
	return result{}, w.box(s).Files().WriteFrom(ctx, pathOf(s), bytes.NewReader(content), options)
}

func (w *world) readFile(ctx context.Context, s step) (result, error) {
	content, err := w.box(s).Files().Read(ctx, pathOf(s))
	sum := sha256.Sum256(content)
	return result{
		"text": string(content), "base64": base64.StdEncoding.EncodeToString(content), "size": len(content), "sha256": hex.EncodeToString(sum[:]),
	}, err
}

func (w *world) stat(ctx context.Context, s step) (result, error) {
	info, err := w.box(s).Files().Info(ctx, pathOf(s))
	if err != nil {
		return nil, err
	}
	return result{"type": info.Type, "mode": int(info.Mode), "size": int(info.SizeBytes)}, nil
}

func (w *world) exists(ctx context.Context, s step) (result, error) {
	exists, err := w.box(s).Files().Exists(ctx, pathOf(s))
	return result{"exists": exists}, err
}

func (w *world) listFiles(ctx context.Context, s step) (result, error) {
	names := []string{}
	for info, err := range w.box(s).Files().List(ctx, pathOf(s), max(1, int(number(s, "depth")))) {
		if err != nil {
			return nil, err
		}
		names = append(names, strings.ToValidUTF8(info.Name, "\uFFFD"))
	}
	slices.Sort(names)
	return result{"names": names}, nil
}

// removeListed describes and removes what a listing names, by the path that it gives.
func (w *world) removeListed(ctx context.Context, s step) (result, error) {
	files := w.box(s).Files()
	for info, err := range files.List(ctx, text(s, "path"), 1) {
		if err == nil {
			_, err = files.Info(ctx, info.Path)
		}
		if err == nil {
			err = files.Delete(ctx, info.Path)
		}
		if err != nil {
			return nil, err
		}
	}
	return result{}, nil
}

func (w *world) glob(ctx context.Context, s step) (result, error) {
	found, err := w.box(s).Files().Glob(ctx, pathOf(s), text(s, "pattern"))
	names := []string{}
	for _, info := range found {
		names = append(names, info.Name)
	}
	slices.Sort(names)
	return result{"names": names}, err
}

func (w *world) checksum(ctx context.Context, s step) (result, error) {
	digest, err := w.box(s).Files().Checksum(ctx, pathOf(s))
	return result{"digest": digest}, err
}

func (w *world) mkdir(ctx context.Context, s step) (result, error) {
	if s["parents"] == false {
		_, err := w.box(s).Files().Mkdir(ctx, pathOf(s), 0o755)
		return result{}, err
	}
	_, err := w.box(s).Files().MkdirAll(ctx, pathOf(s), 0o755)
	return result{}, err
}

func (w *world) move(ctx context.Context, s step) (result, error) {
	_, err := w.box(s).Files().Move(ctx, pathOf(s), text(s, "to"), truth(s, "overwrite"))
	return result{}, err
}

func (w *world) copy(ctx context.Context, s step) (result, error) {
	_, err := w.box(s).Files().Copy(ctx, pathOf(s), text(s, "to"), truth(s, "overwrite"))
	return result{}, err
}

func (w *world) remove(ctx context.Context, s step) (result, error) {
	if truth(s, "recursive") || truth(s, "missingOk") {
		return result{}, w.box(s).Files().DeleteAll(ctx, pathOf(s))
	}
	return result{}, w.box(s).Files().Delete(ctx, pathOf(s))
}

func (w *world) watchFile(ctx context.Context, s step) (result, error) {
	events, err := w.box(s).Files().Watch(ctx, path.Dir(pathOf(s)), false)
	if err != nil {
		return nil, err
	}
	if err := w.box(s).Files().Write(ctx, pathOf(s), []byte("watched")); err != nil {
		return nil, err
	}
	for event, err := range events {
		if err != nil {
			return nil, err
		}
		if event.Path == pathOf(s) {
			return result{"seen": true}, nil
		}
	}
	return nil, errors.New("the watch ended")
}

func (w *world) roundTrip(ctx context.Context, s step) (result, error) {
	scratch, err := os.MkdirTemp("", "scenario-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	there, back := filepath.Join(scratch, "there"), filepath.Join(scratch, "back")
	for name, content := range textMap(s, "files") {
		file := filepath.Join(there, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			return nil, err
		}
	}
	if err := w.box(s).Files().Upload(ctx, there, pathOf(s)); err != nil {
		return nil, err
	}
	if err := w.box(s).Files().Download(ctx, pathOf(s), back); err != nil {
		return nil, err
	}
	found := result{}
	err = fs.WalkDir(os.DirFS(back), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(back, name))
		found[name] = string(content)
		return err
	})
	return result{"files": found}, err
}

func (w *world) fetch(ctx context.Context, s step) (result, error) {
	client, base, err := w.box(s).Port(int(number(s, "port")))
	if err != nil {
		return nil, err
	}
	method := text(s, "method")
	request, err := http.NewRequestWithContext(ctx, method, base.JoinPath(text(s, "path")).String(), strings.NewReader(text(s, "body")))
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return result{"status": response.StatusCode, "text": string(content)}, err
}
