// Program watching runs client-go informers while their watches are broken by cutting-proxy.ts, and prints every event that each of them delivered.
//
// It takes one argument, JSON of type settings. Every watch that goes on where an earlier one ended is a line `{"resumed": i}` on its
// output. Once the object named `end` has reached every informer, the last line is a report and the program ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log"
	"os"
	"sync"

	"k8s.io/klog/v2"
)

// settings say whom to watch, and how.
type settings struct {
	Kubeconfig string `json:"kubeconfig"`
	// Proxied is where watches get cut; Direct is the server itself, which ends watches when their time is over.
	Proxied   string `json:"proxied"`
	Direct    string `json:"direct"`
	Namespace string `json:"namespace"`
	// Cut and Closed are how many informers of each kind go which way.
	Cut    int `json:"cut"`
	Closed int `json:"closed"`
}

func main() {
	// Cut connections are what this is about, so what client-go says of them is noise.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	flag.Parse()
	if err := run(context.Background(), flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, argument string) error {
	var wanted settings
	if err := json.Unmarshal([]byte(argument), &wanted); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &lines{encoder: json.NewEncoder(os.Stdout)}
	watchers, err := startWatchers(ctx, wanted, out)
	if err != nil {
		return err
	}
	var reports []report
	for _, watcher := range watchers {
		<-watcher.ended
		reports = append(reports, watcher.report())
	}
	return out.say(map[string]any{"watchers": reports})
}

// lines writes one JSON value a line; informers write at the same time.
type lines struct {
	mutex   sync.Mutex
	encoder *json.Encoder
}

func (l *lines) say(value any) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.encoder.Encode(value)
}

func startWatchers(ctx context.Context, wanted settings, out *lines) ([]*watcher, error) {
	var watchers []*watcher
	var failures []error
	start := func(server string, isClosed bool) {
		for _, kind := range []kind{configMaps, sandboxes} {
			// Every other informer streams its first list, the others ask for it in pages.
			one := &watcher{
				index: len(watchers), kind: kind, isStreaming: (len(watchers)/2)%2 == 0, isClosed: isClosed,
				namespace: wanted.Namespace, out: out, known: map[string]string{}, ended: make(chan struct{}),
			}
			watchers = append(watchers, one)
			failures = append(failures, one.start(ctx, wanted.Kubeconfig, server))
		}
	}
	for range wanted.Cut {
		start(wanted.Proxied, false)
	}
	for range wanted.Closed {
		start(wanted.Direct, true)
	}
	return watchers, errors.Join(failures...)
}
