package main

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func (w *watcher) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { w.put("added", object) },
		UpdateFunc: func(old, object any) {
			// A list repeats what is known already; that is no notification of a change.
			if accessor(old).GetResourceVersion() != accessor(object).GetResourceVersion() {
				w.put("updated", object)
			}
		},
		DeleteFunc: w.remove,
	}
}

func (w *watcher) put(what string, object any) {
	seen := accessor(object)
	uid, version := string(seen.GetUID()), seen.GetResourceVersion()
	w.mutex.Lock()
	w.known[uid] = version
	w.records = append(w.records, record{What: what, UID: uid, Version: version})
	w.mutex.Unlock()
	if seen.GetName() == endName {
		go w.settle()
	}
}

// remove records a deletion; one that was found out by listing has no version.
func (w *watcher) remove(object any) {
	version := ""
	if unknown, isUnknown := object.(cache.DeletedFinalStateUnknown); isUnknown {
		object = unknown.Obj
	} else {
		version = accessor(object).GetResourceVersion()
	}
	uid := string(accessor(object).GetUID())
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.known, uid)
	w.records = append(w.records, record{What: "deleted", UID: uid, Version: version})
}

// settle waits until handlers have seen all that is in the store: a list may have put the last object before others.
func (w *watcher) settle() {
	for !maps.Equal(w.stored(), w.notified()) {
		time.Sleep(10 * time.Millisecond)
	}
	close(w.ended)
}

func (w *watcher) stored() map[string]string {
	stored := map[string]string{}
	for _, object := range w.informer.GetStore().List() {
		stored[string(accessor(object).GetUID())] = accessor(object).GetResourceVersion()
	}
	return stored
}

func (w *watcher) notified() map[string]string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return maps.Clone(w.known)
}

func (w *watcher) report() report {
	stored := w.stored()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return report{Kind: w.kind, Resumed: w.resumed, Records: w.records, Gaps: w.gaps, Stored: stored}
}

func accessor(object any) metav1.Object {
	return object.(metav1.Object)
}
