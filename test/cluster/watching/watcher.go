package main

import (
	"context"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// kind is what a watcher watches: one by the typed client, one by the dynamic.
type kind string

const (
	configMaps kind = "configmaps"
	sandboxes  kind = "sandboxes"
)

var sandboxResource = schema.GroupVersionResource{Group: "agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxes"}

// endName is the object after which nothing else comes.
const endName = "end"

// record is one notification: what happened, to which uid, at which resourceVersion.
type record struct {
	What    string `json:"what"`
	UID     string `json:"uid"`
	Version string `json:"version"`
}

// gap is a list that took the place of events: those after From and up to To may have been merged.
type gap struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// report is all that one watcher saw.
type report struct {
	Kind    kind              `json:"kind"`
	Resumed int               `json:"resumed"`
	Records []record          `json:"records"`
	Gaps    []gap             `json:"gaps"`
	Stored  map[string]string `json:"stored"`
}

// watcher is one informer with connections of its own.
type watcher struct {
	index       int
	kind        kind
	isStreaming bool
	isClosed    bool
	namespace   string
	out         *lines
	informer    cache.SharedIndexInformer

	mutex    sync.Mutex
	isListed bool
	resumed  int
	records  []record
	gaps     []gap
	known    map[string]string
	ended    chan struct{}
}

// source lists and watches one kind; the typed and the dynamic client both have this shape.
type source struct {
	list  func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

func (w *watcher) start(ctx context.Context, kubeconfig, server string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.Host = server
	config.QPS = -1
	// A dialer of its own keeps client-go from sharing one connection among all watchers.
	config.Dial = (&net.Dialer{Timeout: 30 * time.Second}).DialContext
	from, err := w.source(config)
	if err != nil {
		return err
	}
	var example runtime.Object = &corev1.ConfigMap{}
	if w.kind == sandboxes {
		example = &unstructured.Unstructured{}
	}
	w.informer = cache.NewSharedIndexInformer(w.listWatch(from), example, 0, cache.Indexers{})
	if _, err := w.informer.AddEventHandler(w.handler()); err != nil {
		return err
	}
	go w.informer.RunWithContext(ctx)
	return nil
}

func (w *watcher) source(config *rest.Config) (source, error) {
	if w.kind == sandboxes {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return source{}, err
		}
		from := client.Resource(sandboxResource).Namespace(w.namespace)
		list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return from.List(ctx, options)
		}
		return source{list: list, watch: from.Watch}, nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return source{}, err
	}
	from := client.CoreV1().ConfigMaps(w.namespace)
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return from.List(ctx, options)
	}
	return source{list: list, watch: from.Watch}, nil
}

// pagedListWatch tells the informer to list before it watches.
type pagedListWatch struct{ *cache.ListWatch }

func (pagedListWatch) IsWatchListSemanticsUnSupported() bool { return true }

func (w *watcher) listWatch(from source) cache.ListerWatcher {
	both := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			since := w.informer.LastSyncResourceVersion()
			list, err := from.list(ctx, options)
			if err == nil {
				w.addGap(since, versionOf(list))
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return w.watch(ctx, from, options)
		},
	}
	if w.isStreaming {
		return both
	}
	return pagedListWatch{both}
}

func (w *watcher) watch(ctx context.Context, from source, options metav1.ListOptions) (watch.Interface, error) {
	if w.isClosed {
		second := int64(1)
		options.TimeoutSeconds = &second
	}
	if options.SendInitialEvents == nil || !*options.SendInitialEvents {
		stream, err := from.watch(ctx, options)
		if err == nil {
			w.countResumed()
		}
		return stream, err
	}
	since := w.informer.LastSyncResourceVersion()
	stream, err := from.watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(stream, func(event watch.Event) (watch.Event, bool) {
		if event.Type == watch.Bookmark && isEndOfList(event.Object) {
			w.addGap(since, versionOf(event.Object))
		}
		return event, true
	}), nil
}

// countResumed counts a watch unless it is the one that follows a list.
func (w *watcher) countResumed() {
	w.mutex.Lock()
	isFirst := w.isListed && !w.isStreaming
	w.isListed = false
	if !isFirst {
		w.resumed++
	}
	w.mutex.Unlock()
	if !isFirst {
		_ = w.out.say(map[string]int{"resumed": w.index})
	}
}

func (w *watcher) addGap(from, to string) {
	w.mutex.Lock()
	w.isListed = true
	w.gaps = append(w.gaps, gap{From: from, To: to})
	w.mutex.Unlock()
	_ = w.out.say(map[string]int{"listed": w.index})
}

func versionOf(object runtime.Object) string {
	accessor, err := meta.CommonAccessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetResourceVersion()
}

func isEndOfList(object runtime.Object) bool {
	accessor, err := meta.Accessor(object)
	return err == nil && accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
