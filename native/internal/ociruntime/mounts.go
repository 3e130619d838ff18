package ociruntime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/loopfs"
	"agent-sandbox.dev/native/internal/mountfd"
	"agent-sandbox.dev/native/internal/volume"
	"golang.org/x/sys/unix"
)

// resolveMounts turns named sources into paths that only root can redirect: what a sandbox or the engine's user may have written is
// resolved once, without links, and held by a bind mount of our own.
func (e *Engine) resolveMounts(r RunRequest) ([]ociMount, error) {
	list := make([]ociMount, 0, len(r.Mounts))
	for i, m := range r.Mounts {
		resolved, err := e.resolveMount(r.ID, i, m)
		if err != nil {
			return nil, err
		}
		list = append(list, resolved)
	}
	return list, nil
}

func (e *Engine) resolveMount(id string, index int, m Mount) (ociMount, error) {
	options := []string{"rbind", "nosuid", "nodev", "rw"}
	if m.ReadOnly || m.Source.Kind == "program" || m.Source.Kind == "files" {
		options[3] = "ro"
	}
	made := ociMount{Destination: m.cleanTarget(), Type: "bind", Options: options}
	if m.Source.Kind == "tmpfs" {
		mode := m.Source.Mode
		if mode == 0 {
			mode = 0o1777
		}
		made.Type, made.Source = "tmpfs", "tmpfs"
		made.Options = []string{"nosuid", "nodev", fmt.Sprintf("mode=%o", mode), fmt.Sprintf("size=%d", m.Source.SizeBytes), options[3]}
		return made, nil
	}
	source, err := e.openSource(m.Source)
	if err != nil {
		return ociMount{}, err
	}
	defer source.Close()
	target := e.inDir(id, "mounts").In(fmt.Sprint(index))
	made.Source = target.Path()
	made.isFile, err = hold(source, target)
	return made, err
}

func (e *Engine) openSource(s Source) (*os.File, error) {
	switch s.Kind {
	case "volume":
		dir, err := e.volumes.Resolve(s.ID)
		if err != nil {
			return nil, err
		}
		return volume.SubPath(dir, s.SubPath)
	case "empty-dir":
		dir, err := e.volumes.ResolveEmptyDir(s.ID)
		if err != nil {
			return nil, err
		}
		return volume.SubPath(dir, s.SubPath)
	case "files":
		return e.openFiles(s)
	case "program":
		return e.openProgram(s.Name)
	}
	return e.openHostPath(s.Path)
}

// programPattern is how `up` names the programs that sandboxes run of ours: by what is in them.
var programPattern = regexp.MustCompile(`^[a-z]{1,32}-[0-9a-f]{12}$`)

func checkProgram(field, name string) error {
	if !programPattern.MatchString(name) {
		return hosterr.New(hosterr.InvalidArgument, "%s: %q is not the name of a program", field, name)
	}
	return nil
}

// programsOf are the programs of ours among the mounts of a container, by target.
func programsOf(mounts []Mount) map[string]string {
	programs := map[string]string{}
	for _, m := range mounts {
		if m.Source.Kind == "program" {
			programs[m.Target] = m.Source.Name
		}
	}
	return programs
}

// withPrograms has the programs of a saved state in place of current ones: processes that go on from memory go on in the file that they were started from.
func withPrograms(mounts []Mount, programs map[string]string) []Mount {
	mounts = slices.Clone(mounts)
	for i, m := range mounts {
		if name, found := programs[m.Target]; found && m.Source.Kind == "program" {
			mounts[i].Source.Name = name
		}
	}
	return mounts
}

// openProgram opens a program that root has put into the data directory.
func (e *Engine) openProgram(name string) (*os.File, error) {
	dir, err := confine.OpenTree(e.inst.Data("bin"))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := dir.At().EnsureRootDir(0o755, 0); err != nil {
		return nil, err
	}
	f, err := dir.At(name).Open(unix.O_PATH, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, hosterr.New(hosterr.NotFound, "program %s does not exist", name)
	}
	return f, err
}

// openFiles follows the links of a files volume, which only this program writes: a sub-path is fixed to the version of its start, as on Kubernetes.
func (e *Engine) openFiles(s Source) (*os.File, error) {
	dir, err := e.volumes.FilesDir(s.ID)
	if err != nil {
		return nil, err
	}
	name := "."
	if s.SubPath != "" {
		if name, err = confine.Relative("subPath", s.SubPath); err != nil {
			return nil, err
		}
	}
	root, err := dir.Open(unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := confine.OpenAt(root, name, unix.O_PATH, 0, unix.RESOLVE_BENEATH)
	if errors.Is(err, os.ErrNotExist) {
		return nil, hosterr.New(hosterr.NotFound, "subPath: %s does not exist in files volume %s", s.SubPath, s.ID)
	}
	return f, err
}

func (e *Engine) openHostPath(name string) (*os.File, error) {
	clean := filepath.Clean(name)
	if e.isOurs(clean) {
		return nil, hosterr.New(hosterr.HostPathDenied, "host path %s holds what belongs to the engine", clean)
	}
	for _, prefix := range e.config.HostPaths {
		if !within(clean, prefix) {
			continue
		}
		root, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		f, err := confine.OpenAt(root, strings.TrimPrefix(clean, "/"), unix.O_PATH, 0, confine.Strictly)
		if errors.Is(err, os.ErrNotExist) {
			return nil, hosterr.New(hosterr.NotFound, "host path %s does not exist", clean)
		}
		return f, err
	}
	return nil, hosterr.New(hosterr.HostPathDenied, "host path %s is not below one that the operator allowed", clean)
}

// isOurs is whether a path leads into the engine's own directories, or has them below it: by the names that the operator gave them, and by
// those without links, which is how a host path is looked up.
func (e *Engine) isOurs(name string) bool {
	for _, own := range []string{e.inst.DataDir, filepath.Dir(e.inst.RunDir), filepath.Dir(e.tree.Path()), filepath.Dir(e.run.Path())} {
		if within(name, own) || within(own, name) {
			return true
		}
	}
	return false
}

func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// hold binds an open descriptor to a place of ours, and says whether it is a file.
func hold(source *os.File, target confine.Entry) (isFile bool, err error) {
	info, err := source.Stat()
	if err != nil {
		return false, err
	}
	if err := target.Dir().EnsureDir(0o700); err != nil {
		return false, err
	}
	if isFile = !info.IsDir(); isFile {
		err = target.WriteFile(nil, 0o600)
	} else {
		err = target.EnsureDir(0o700)
	}
	if err != nil {
		return isFile, err
	}
	mount, err := mountfd.Clone(source, true)
	if err != nil {
		return isFile, err
	}
	defer mount.Close()
	return isFile, mountfd.Attach(mount, target)
}

// releaseMounts undoes hold for all mounts of a container.
func (e *Engine) releaseMounts(id string) error {
	dir := e.containerDir(id)
	points, err := loopfs.MountsBelow(dir)
	if err != nil {
		return err
	}
	for _, point := range points {
		if err := mountfd.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", point.Path(), err)
		}
	}
	return nil
}
