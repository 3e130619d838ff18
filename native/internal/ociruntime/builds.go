package ociruntime

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// builds are the runsc programs of an instance, one directory each, named by version and content. A sentry answers the program that started it;
// another version's may speak another protocol. So each container's record names its build, and every call for it runs that build. The directory
// is root's, and what is put there comes from the supervisor's flag: no verb names a program.
type builds struct {
	dir confine.Entry
	// current is what sandboxes are started with; empty: runsc is not available.
	current string
	// removing is held while unused builds are looked for, so that two ends at once do not count each other's.
	removing sync.Mutex
}

// buildPattern is a version and the first twelve digits of the program's SHA-256.
var buildPattern = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._~+-]{0,99}\+[0-9a-f]{12}$`)

const (
	// newBuild begins the name of a directory that is being filled.
	newBuild = ".new-"
	// buildProgram is the name that reapOrphans knows runsc's processes by.
	buildProgram = "runsc"
)

func checkBuild(name string) error {
	if name != "" && !buildPattern.MatchString(name) {
		return fmt.Errorf("runtimeVersion: %q is not a version and a digest", name)
	}
	return nil
}

func digestOf(r io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

func (b *builds) program(build string) confine.Entry { return b.dir.In(build, buildProgram) }

// has is whether a build is there, whole: a directory gets its name once its program is on the disk.
func (b *builds) has(build string) bool {
	if build == "" {
		return false
	}
	stat, err := b.program(build).Lstat()
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG
}

// install copies a program to the directory of its build, unless it is there. A copy, because the file that it is taken from is replaced by the
// next version of the engine, and may be another user's in a checkout.
func (b *builds) install(build, source string) error {
	if err := b.dir.EnsureRootDir(0o700, 0); err != nil {
		return err
	}
	if err := b.tidy(); err != nil {
		return err
	}
	if !buildPattern.MatchString(build) {
		return checkBuild(build)
	}
	if b.has(build) {
		return nil
	}
	work, err := b.dir.MakeTempDir(newBuild, 0o700)
	if err != nil {
		return err
	}
	if err := b.copy(work.In(buildProgram), source, build); err != nil {
		return errors.Join(err, work.RemoveAll())
	}
	if err := errors.Join(syncDir(work), work.Rename(b.dir.In(build))); err != nil {
		return errors.Join(err, work.RemoveAll())
	}
	return syncDir(b.dir)
}

func (b *builds) copy(to confine.Entry, source, build string) error {
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	file, err := to.Open(unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(file, from); err != nil {
		return err
	}
	// What was copied is what counts: the source may have changed since its digest was taken.
	digest, err := digestOf(io.NewSectionReader(file, 0, 1<<62))
	if err != nil {
		return err
	}
	if !strings.HasSuffix(build, "+"+digest) {
		return fmt.Errorf("%s changed while it was installed; start again", source)
	}
	return errors.Join(file.Chmod(0o755), file.Sync())
}

func syncDir(entry confine.Entry) error {
	dir, err := entry.OpenDir()
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// tidy removes what helpers that were killed left half filled.
func (b *builds) tidy() error {
	entries, err := b.dir.ReadDir()
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), newBuild) {
			err = errors.Join(err, b.dir.In(entry.Name()).RemoveAll())
		}
	}
	return err
}

// names are the builds that are installed.
func (b *builds) names() ([]string, error) {
	entries, err := b.dir.ReadDir()
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var list []string
	for _, entry := range entries {
		if buildPattern.MatchString(entry.Name()) {
			list = append(list, entry.Name())
		}
	}
	return list, err
}

// removeUnusedBuilds removes the builds that no record of a container or of a saved state names, except the current one.
func (e *Engine) removeUnusedBuilds() error {
	e.builds.removing.Lock()
	defer e.builds.removing.Unlock()
	installed, err := e.builds.names()
	if err != nil {
		return err
	}
	// After the builds: a record that comes meanwhile is of the current build, or of a sandbox whose record is there.
	records, err := e.records()
	if err != nil {
		return err
	}
	saved, err := e.manifests()
	if err != nil {
		return err
	}
	for _, build := range installed {
		used := slices.ContainsFunc(saved, func(m manifest) bool { return m.RuntimeVersion == build }) || slices.ContainsFunc(records, func(r record) bool { return r.RuntimeVersion == build })
		if used || build == e.builds.current {
			continue
		}
		if err := e.builds.dir.In(build).RemoveAll(); err != nil {
			return err
		}
		slog.Info("a runsc that no sandbox needs any more was removed", "runtimeVersion", build)
	}
	return nil
}

// driver is a runtime and the program that is called for it.
type driver struct{ runtime, program string }

// driverOf is what drives a container: under runsc the build that its sandbox was started with, and no other.
func (e *Engine) driverOf(r record) (driver, error) {
	if r.Runtime == Runc {
		return driver{Runc, e.config.RuncPath}, e.available(Runc)
	}
	if !e.builds.has(r.RuntimeVersion) {
		return driver{}, e.missingBuild(r)
	}
	return driver{Runsc, e.builds.program(r.RuntimeVersion).Path()}, nil
}

func (e *Engine) missingBuild(r record) error {
	const advice = "delete the sandbox, or suspend and resume it, to start it with the current one"
	if r.RuntimeVersion == "" {
		return hosterr.New(hosterr.RuntimeMissing, "container %s was started by a runsc that is not known any more; %s", r.ID, advice)
	}
	return hosterr.New(hosterr.RuntimeMissing, "container %s was started by runsc %s, which is missing from %s; %s", r.ID, r.RuntimeVersion, e.builds.dir.Path(), advice)
}

// buildFor is the build of a container that is to be started: that of the sandbox it joins, that of the state it is restored from, or the current one.
func (e *Engine) buildFor(r RunRequest) (string, error) {
	if r.Runtime != Runsc {
		return "", nil
	}
	if r.SandboxID == "" && r.RestoreFrom != nil {
		saved, err := e.readSaved(r.RestoreFrom.Saved)
		return saved.RuntimeVersion, err
	}
	if r.SandboxID == "" {
		return e.builds.current, e.available(Runsc)
	}
	root, err := e.readRecord(r.SandboxID)
	if err != nil {
		return "", err
	}
	_, err = e.driverOf(root)
	return root.RuntimeVersion, err
}

// adopt writes the build into the records of sandboxes that run and name none: helpers before this one drove every container with the one program
// they had. It is the current one exactly where the sentry's own program has the same content.
func (e *Engine) adopt() error {
	records, err := e.records()
	if err != nil {
		return err
	}
	same := map[int]bool{}
	for _, r := range records {
		if r.Runtime != Runsc || r.RuntimeVersion != "" || !e.isAlive(r) || e.builds.current == "" {
			continue
		}
		if _, known := same[r.Pid]; !known {
			same[r.Pid] = runsBuild(r.Pid, e.builds.current)
		}
		if !same[r.Pid] {
			slog.Warn("a sandbox was started by a runsc that is not known any more", "container", r.ID)
			continue
		}
		r.RuntimeVersion = e.builds.current
		settled, err := e.beginRecord(r)
		if err != nil {
			return err
		}
		if err := settled(); err != nil {
			return err
		}
	}
	return nil
}

// runsBuild only compares: what a sentry says its program is, is never installed or run.
func runsBuild(pid int, build string) bool {
	program, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	defer program.Close()
	digest, err := digestOf(program)
	return err == nil && strings.HasSuffix(build, "+"+digest)
}

// BuildUse is a runsc of this instance and how many sandboxes it drives.
type BuildUse struct {
	Version   string `json:"version"`
	Current   bool   `json:"current"`
	Installed bool   `json:"installed"`
	Sandboxes int    `json:"sandboxes"`
}

// BuildsInUse are the installed builds, and those that a sandbox names and that are missing.
func (e *Engine) BuildsInUse() ([]BuildUse, error) {
	installed, err := e.builds.names()
	if err != nil {
		return nil, err
	}
	records, err := e.records()
	if err != nil {
		return nil, err
	}
	uses := map[string]*BuildUse{}
	use := func(build string) *BuildUse {
		if uses[build] == nil {
			uses[build] = &BuildUse{Version: build, Current: build == e.builds.current, Installed: e.builds.has(build)}
		}
		return uses[build]
	}
	for _, build := range installed {
		use(build)
	}
	for _, r := range records {
		if r.Runtime == Runsc && r.isRoot() && e.mayRun(r) {
			use(r.RuntimeVersion).Sandboxes++
		}
	}
	list := []BuildUse{}
	for _, u := range uses {
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b BuildUse) int { return strings.Compare(a.Version, b.Version) })
	return list, nil
}
