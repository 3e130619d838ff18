package process

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Explained is a failed start with a sentence about the mistake that led to it, and what to do; the error itself keeps the kernel's words.
type Explained struct {
	Sentence string
	Err      error
}

func (e *Explained) Error() string { return e.Err.Error() }

func (e *Explained) Unwrap() error { return e.Err }

// explain looks for the mistake behind a program that did not start: the kernel has one answer for a working directory, a program and an
// interpreter that are not there, and one for everything that may not be executed.
func explain(path, dir string, err error) error {
	var sentence string
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		sentence = explainMissing(path, dir)
	case errors.Is(err, fs.ErrPermission):
		sentence = explainDenied(path, dir)
	case errors.Is(err, syscall.ENOEXEC):
		sentence = fmt.Sprintf("%s%s is neither a program nor a script with an interpreter in its first line; run it with its interpreter, such as sh %s", path, inSandbox(), path)
		err = errors.Join(fs.ErrPermission, err)
	}
	if sentence == "" {
		return err
	}
	return &Explained{sentence, err}
}

func explainMissing(path, dir string) string {
	if info, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Sprintf("no such directory %s%s; use one that is there, or make it first", dir, inSandbox())
	} else if err == nil && !info.IsDir() {
		return fmt.Sprintf("%s%s is not a directory; use one as the working directory", dir, inSandbox())
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Sprintf("no such program %s%s; use an image that has it, or name another path", path, inSandbox())
	}
	if interpreter := interpreterOf(path); interpreter != "" {
		return fmt.Sprintf("%s%s begins with #!%s, and there is no such program; use an image that has it, or name another in the first line", path, inSandbox(), interpreter)
	}
	return fmt.Sprintf("the loader or a library of %s is missing%s; use an image that it was built for", path, inSandbox())
}

func explainDenied(path, dir string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return ""
	case info.IsDir():
		return fmt.Sprintf("%s%s is a directory, not a program; name a program in it", path, inSandbox())
	case info.Mode()&0o111 == 0:
		return fmt.Sprintf("%s%s is not executable; let it be with chmod +x %s, or run it with its interpreter, such as sh %s", path, inSandbox(), path, path)
	}
	return fmt.Sprintf("the user of the command may not execute %s in %s%s; use another user or directory", path, dir, inSandbox())
}

// interpreterMax is as much of a first line as the kernel reads.
const interpreterMax = 256

// interpreterOf is the program that a script names in its first line, or nothing.
func interpreterOf(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	line, err := bufio.NewReaderSize(file, interpreterMax).ReadSlice('\n')
	if err != nil && len(line) == 0 {
		return ""
	}
	rest, isScript := strings.CutPrefix(string(line), "#!")
	fields := strings.Fields(rest)
	if !isScript || len(fields) == 0 {
		return ""
	}
	return fields[0]
}

// inSandbox names the sandbox, whose host name is its own.
func inSandbox() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return ""
	}
	return " in sandbox " + name
}
