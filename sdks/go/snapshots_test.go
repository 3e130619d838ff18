package sandbox

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
)

// fakeAPI keeps what is made, says of it what a test wants, and forgets what is deleted.
type fakeAPI struct {
	mutex   sync.Mutex
	objects map[string]map[string]any
	// made has the names of every snapshot that there ever was.
	made []string
	// verdict is the reason of the Ready condition, whose status is True for the two good ones.
	verdict func(plural, name string) string
}

func (f *fakeAPI) handle(w http.ResponseWriter, r *http.Request, body []byte, _ int) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	plural := parts[5]
	if len(parts) == 6 && r.Method == http.MethodPost {
		sent := map[string]any{}
		_ = json.Unmarshal(body, &sent)
		writeJSON(w, 201, f.keep(plural, sent))
		return
	}
	if len(parts) == 6 {
		items := []any{}
		for key, object := range f.objects {
			if strings.HasPrefix(key, plural+"/") {
				items = append(items, object)
			}
		}
		writeJSON(w, 200, map[string]any{"items": items, "metadata": map[string]any{}})
		return
	}
	key := plural + "/" + parts[6]
	found, known := f.objects[key]
	if !known {
		writeJSON(w, 404, map[string]any{"kind": "Status", "code": 404, "reason": "NotFound", "message": key + " not found"})
		return
	}
	if r.Method == http.MethodDelete {
		delete(f.objects, key)
	}
	writeJSON(w, 200, found)
}

func (f *fakeAPI) keep(plural string, sent map[string]any) map[string]any {
	meta := sent["metadata"].(map[string]any)
	name := meta["name"].(string)
	meta["namespace"], meta["uid"], meta["generation"] = "default", "uid-"+name, 1
	if plural == snapshots.plural {
		f.made = append(f.made, name)
	}
	reason := f.verdict(plural, name)
	status := "False"
	if reason == "SnapshotReady" || reason == "DependenciesReady" {
		status = "True"
	}
	ready := map[string]any{"type": "Ready", "status": status, "reason": reason, "message": "words", "observedGeneration": 1}
	sent["status"] = map[string]any{"conditions": []any{ready}, "sandboxUID": "uid-box", "nodeName": "one", "sizeBytes": 7, "standstillMs": 3}
	f.objects[plural+"/"+name] = sent
	return sent
}

func (f *fakeAPI) names(plural string) []string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	found := []string{}
	for key := range f.objects {
		if name, isOf := strings.CutPrefix(key, plural+"/"); isOf {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func good(plural, _ string) string {
	if plural == snapshots.plural {
		return "SnapshotReady"
	}
	return "DependenciesReady"
}

// forkGround is an API with a sandbox "box", and its handle.
func forkGround(t *testing.T, verdict func(plural, name string) string) (*fakeAPI, *Sandbox) {
	t.Helper()
	api := &fakeAPI{objects: map[string]map[string]any{}, verdict: verdict}
	api.keep("sandboxes", map[string]any{
		"metadata": map[string]any{
			"name":        "box",
			"labels":      map[string]any{"team": "a", templateRefHashLabel: "h", "agents.x-k8s.io/claim-uid": "u"},
			"annotations": map[string]any{servicesAnnotation: "[]", "agent-sandbox.dev/last-activity-at": "t"},
		},
		"spec": map[string]any{
			"operatingMode": "Suspended", "wakePolicy": "Never", "shutdownTime": "2030-01-01T00:00:00Z",
			"podTemplate": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "python:3"}}}},
		},
	})
	server := serve(t, api.handle)
	box := newSandbox(engineAt(server.URL), &object{Metadata: metadata{Name: "box", Namespace: "default", UID: "uid-box"}})
	return api, box
}

func TestASnapshotSaysWhatWasSaved(t *testing.T) {
	api, box := forkGround(t, good)
	taken, err := box.Snapshot(t.Context(), SnapshotOptions{Name: "before", WithoutMemory: true, TTL: 90500 * time.Millisecond})
	if err != nil || taken.State != "ready" || taken.Sandbox != "box" || taken.SizeBytes != 7 || taken.StandstillMs != 3 {
		t.Fatalf("%+v, %v", taken, err)
	}
	spec := api.objects["sandboxsnapshots/before"]["spec"].(map[string]any)
	if spec["memory"] != false || spec["ttlSecondsAfterCreation"] != 91.0 {
		t.Errorf("%v", spec)
	}
	listed, err := ListSnapshots(t.Context(), WithEngine(box.engine))
	if err != nil || len(listed) != 1 || listed[0].Name != "before" {
		t.Errorf("%+v, %v", listed, err)
	}
	for range 2 {
		if err := DeleteSnapshot(t.Context(), "before", WithEngine(box.engine)); err != nil {
			t.Error(err)
		}
	}
	if left := api.names(snapshots.plural); len(left) != 0 {
		t.Errorf("%v", left)
	}
}

func TestASnapshotThatFailsLeavesNothing(t *testing.T) {
	for reason, code := range snapshotEnds {
		api, box := forkGround(t, func(plural, _ string) string { return reason })
		if _, err := box.Snapshot(t.Context(), SnapshotOptions{}); CodeOf(err) != code || !strings.Contains(messageOf(err), "words") {
			t.Errorf("%s: %v", reason, err)
		}
		if left := api.names(snapshots.plural); len(left) != 0 {
			t.Errorf("%s: %v", reason, left)
		}
	}
	_, box := forkGround(t, good)
	box.UID = "another"
	if _, err := box.Snapshot(t.Context(), SnapshotOptions{}); CodeOf(err) != errorcode.NotFound {
		t.Errorf("a snapshot of another sandbox was taken: %v", err)
	}
}

func TestForksComeInOrderFromOneSnapshot(t *testing.T) {
	api, box := forkGround(t, good)
	forks, err := box.Fork(t.Context(), 3, ForkOptions{Name: "copy"})
	if err != nil || len(forks) != 3 {
		t.Fatalf("%v, %v", forks, err)
	}
	for index, name := range []string{"copy-1", "copy-2", "copy-3"} {
		if forks[index].Err != nil || forks[index].Sandbox.Name != name {
			t.Errorf("%d: %+v", index, forks[index])
		}
	}
	if len(api.made) != 1 || len(api.names(snapshots.plural)) != 0 {
		t.Errorf("made %v, left %v", api.made, api.names(snapshots.plural))
	}
	child := api.objects["sandboxes/copy-2"]
	spec, meta := child["spec"].(map[string]any), child["metadata"].(map[string]any)
	if _, held := spec["operatingMode"]; held || spec["wakePolicy"] != "Never" || spec["restoreFrom"].(map[string]any)["snapshotName"] != api.made[0] {
		t.Errorf("%v", spec)
	}
	labels, annotations := meta["labels"].(map[string]any), meta["annotations"].(map[string]any)
	if len(labels) != 3 || labels["team"] != "a" || labels[templateRefHashLabel] != "h" || labels[createdByLabel] != createdBy {
		t.Errorf("%v", labels)
	}
	if len(annotations) != 1 || annotations[servicesAnnotation] != "[]" {
		t.Errorf("%v", annotations)
	}
}

func TestAForkThatFailsIsAnErrorInItsPlace(t *testing.T) {
	api, box := forkGround(t, func(plural, name string) string {
		if name == "copy-2" {
			return "RestoreFailed"
		}
		return good(plural, name)
	})
	forks, err := box.Fork(t.Context(), 3, ForkOptions{Name: "copy"})
	if err != nil || forks[0].Err != nil || forks[1].Err == nil || forks[2].Err != nil {
		t.Fatalf("%+v, %v", forks, err)
	}
	if left := api.names("sandboxes"); !slices.Equal(left, []string{"box", "copy-1", "copy-3"}) {
		t.Errorf("%v", left)
	}
}

func TestAForkThatIsGivenUpLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	api, box := forkGround(t, func(plural, name string) string {
		if plural == "sandboxes" && name != "box" {
			cancel()
		}
		return good(plural, name)
	})
	if _, err := box.Fork(ctx, 2, ForkOptions{}); err == nil {
		t.Error("no error")
	}
	if left := append(api.names("sandboxes"), api.names(snapshots.plural)...); !slices.Equal(left, []string{"box"}) {
		t.Errorf("%v", left)
	}
}

func TestForksAreCounted(t *testing.T) {
	api, box := forkGround(t, good)
	for _, count := range []int{0, -1, 1001} {
		if _, err := box.Fork(t.Context(), count, ForkOptions{}); CodeOf(err) != errorcode.InvalidArgument {
			t.Errorf("%d: %v", count, err)
		}
	}
	if len(api.made) != 0 {
		t.Errorf("%v", api.made)
	}
}

func TestASandboxFromASnapshotTakesOverWhatRan(t *testing.T) {
	api, box := forkGround(t, good)
	if _, err := box.Snapshot(t.Context(), SnapshotOptions{Name: "before"}); err != nil {
		t.Fatal(err)
	}
	engine := WithEngine(box.engine)
	if _, err := Create(t.Context(), engine, WithName("again"), WithFromSnapshot("before")); err != nil {
		t.Fatal(err)
	}
	spec := api.objects["sandboxes/again"]["spec"].(map[string]any)
	if spec["wakePolicy"] != "Never" || spec["shutdownTime"] != nil || spec["restoreFrom"].(map[string]any)["snapshotName"] != "before" {
		t.Errorf("%v", spec)
	}
	if _, err := Create(t.Context(), engine, WithCPU("2"), WithFromSnapshot("before")); CodeOf(err) != errorcode.InvalidArgument {
		t.Errorf("half of what runs: %v", err)
	}
	delete(api.objects, "sandboxes/box")
	if _, err := Create(t.Context(), engine, WithFromSnapshot("before")); !strings.Contains(messageOf(err), "'box' of snapshot 'before' is gone") {
		t.Errorf("the sandbox is gone: %v", err)
	}
	if _, err := Create(t.Context(), engine, WithImage("python:3"), WithFromSnapshot("before")); err != nil {
		t.Error(err)
	}
}
