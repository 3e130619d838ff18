package volume

import (
	"errors"
	"os"

	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/loopfs"
)

// EmptyDirUse is how full the empty directories are that have an image of their own.
func (s *Store) EmptyDirUse() ([]Volume, error) {
	ids, err := instance.IDsIn(s.tree.At("empty"), ".img")
	if err != nil {
		return nil, err
	}
	list := []Volume{}
	for _, id := range ids {
		mounted, err := loopfs.Mounted(s.emptyMount(id))
		if err != nil {
			return nil, err
		}
		if !mounted {
			continue
		}
		size, used, err := loopfs.Usage(s.emptyMount(id))
		if errors.Is(err, os.ErrNotExist) {
			// Removed meanwhile.
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, Volume{ID: id, SizeBytes: size, UsedBytes: used, Mounted: true})
	}
	return list, nil
}
