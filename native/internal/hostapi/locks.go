package hostapi

import (
	"context"
	"sort"
	"sync"
)

// keyLocks is one lock per name, made when first wanted and gone with the last who wants it.
type keyLocks struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

type keyLock struct {
	turn  chan struct{}
	users int
}

func newKeyLocks() *keyLocks { return &keyLocks{locks: map[string]*keyLock{}} }

// lock takes all keys, in one order for everybody so that no two wait for each other.
func (k *keyLocks) lock(ctx context.Context, keys []string) (release func(), err error) {
	sort.Strings(keys)
	var taken []string
	release = func() {
		for i := len(taken) - 1; i >= 0; i-- {
			k.unlock(taken[i])
		}
	}
	for i, key := range keys {
		if i > 0 && key == keys[i-1] {
			continue
		}
		if err := k.take(ctx, key); err != nil {
			release()
			return nil, err
		}
		taken = append(taken, key)
	}
	return release, nil
}

func (k *keyLocks) take(ctx context.Context, key string) error {
	k.mu.Lock()
	l, found := k.locks[key]
	if !found {
		l = &keyLock{turn: make(chan struct{}, 1)}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		k.leave(key)
		return ctx.Err()
	}
}

func (k *keyLocks) unlock(key string) {
	k.mu.Lock()
	<-k.locks[key].turn
	k.mu.Unlock()
	k.leave(key)
}

func (k *keyLocks) leave(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.locks[key]
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}
