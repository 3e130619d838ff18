package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	sandbox "agent-sandbox.dev/sdk"
	"agent-sandbox.dev/sdk/errorcode"
)

// world is what the steps of one scenario share.
type world struct {
	engine    *sandbox.Engine
	boxes     map[string]*sandbox.Sandbox
	processes map[string]*process
	kept      map[string]result
	made      []*sandbox.Sandbox
	proxy     *cuttingProxy
}

type verb func(*world, context.Context, step) (result, error)

var verbs map[string]verb

func init() {
	verbs = map[string]verb{
		"create": (*world).create, "open": (*world).open, "get": (*world).get, "claim": (*world).claim, "handle": (*world).handle, "list": (*world).list,
		"info": (*world).info, "delete": (*world).delete, "suspend": (*world).suspend, "resume": (*world).resume, "fork": (*world).fork, "snapshot": (*world).snapshot, "delete-snapshot": (*world).deleteSnapshot, "set-timeout": (*world).setTimeout,
		"extend": (*world).extend, "remove-listed": (*world).removeListed, "logs": (*world).logs, "await-state": (*world).awaitState, "metrics": (*world).metrics, "ports": (*world).ports,
		"start-service": (*world).startService, "remove-service": (*world).removeService, "open-link": (*world).openLink, "apply": (*world).apply, "remove-object": (*world).removeObject,
		"run": (*world).run, "run-many": (*world).runMany, "spawn": (*world).spawn, "pty": (*world).pty, "attach": (*world).attach,
		"read-until": (*world).readUntil, "write": (*world).write, "close-input": (*world).closeInput, "signal": (*world).signal,
		"resize": (*world).resize, "detach": (*world).detach, "wait": (*world).wait, "processes": (*world).listProcesses, "cut": (*world).cut,
		"write-file": (*world).writeFile, "read-file": (*world).readFile, "stat": (*world).stat, "exists": (*world).exists,
		"list-files": (*world).listFiles, "glob": (*world).glob, "checksum": (*world).checksum, "mkdir": (*world).mkdir, "move": (*world).move,
		"copy": (*world).copy, "remove": (*world).remove, "watch-file": (*world).watchFile, "round-trip": (*world).roundTrip, "fetch": (*world).fetch,
	}
}

func newWorld(engine *sandbox.Engine) *world {
	var random [4]byte
	rand.Read(random[:])
	return &world{
		engine: engine, boxes: map[string]*sandbox.Sandbox{}, processes: map[string]*process{},
		kept: map[string]result{"run": {"": "r" + hex.EncodeToString(random[:])}},
	}
}

// close deletes what the scenario made.
func (w *world) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, box := range w.made {
		_ = box.Delete(ctx)
	}
	if w.proxy != nil {
		w.proxy.close()
	}
}

func (w *world) box(s step) *sandbox.Sandbox {
	if name := text(s, "box"); name != "" {
		return w.boxes[name]
	}
	return w.boxes["box"]
}

func (w *world) keep(name string, box *sandbox.Sandbox) result {
	if name == "" {
		name = "box"
	}
	w.boxes[name] = box
	w.kept[name] = result{"name": box.Name, "namespace": box.Namespace, "uid": box.UID}
	return w.kept[name]
}

func (w *world) keepMade(s step, box *sandbox.Sandbox, err error) (result, error) {
	if err != nil {
		return nil, err
	}
	w.made = append(w.made, box)
	return w.keep(text(s, "as"), box), nil
}

// engineFor is the engine of a step, behind a proxy where the step asks for one.
func (w *world) engineFor(s step) (*sandbox.Engine, error) {
	if !truth(s, "throughProxy") {
		return w.engine, nil
	}
	target, err := url.Parse(w.engine.RouterURL())
	if err != nil {
		return nil, err
	}
	if w.proxy, err = startProxy(target.Host); err != nil {
		return nil, err
	}
	return w.engine.WithRouterURL("https://" + w.proxy.listener.Addr().String()), nil
}

func startOptions(s step) []sandbox.StartOption {
	options := []sandbox.StartOption{sandbox.WithEnv(textMap(s, "env")), sandbox.WithLabels(textMap(s, "labels"))}
	if ttl := seconds(s, "ttlSeconds"); ttl > 0 {
		options = append(options, sandbox.WithTTL(ttl))
	}
	if limit := seconds(s, "readyTimeoutSeconds"); limit > 0 {
		options = append(options, sandbox.WithReadyTimeout(limit))
	}
	return options
}

func makeOptions(s step) []sandbox.MakeOption {
	options := []sandbox.MakeOption{
		sandbox.WithImage(text(s, "image")), sandbox.WithWorkdir(text(s, "workdir")), sandbox.WithCPU(text(s, "cpu")), sandbox.WithMemory(text(s, "memory")),
	}
	if argv := texts(s["entrypoint"]); len(argv) > 0 {
		options = append(options, sandbox.WithCommand(argv...))
	}
	if policy := text(s, "restartPolicy"); policy != "" {
		options = append(options, sandbox.WithPodTemplate(map[string]any{"spec": map[string]any{"restartPolicy": policy}}))
	}
	if name := text(s, "fromSnapshot"); name != "" {
		options = append(options, sandbox.WithFromSnapshot(name))
	}
	volumes, _ := s["volumes"].([]any)
	for _, volume := range volumes {
		fields := volume.(map[string]any)
		options = append(options, sandbox.WithVolumes(sandbox.Volume{Path: text(fields, "path"), Size: text(fields, "size")}))
	}
	return options
}

func seconds(s step, key string) time.Duration {
	return time.Duration(number(s, key) * float64(time.Second))
}

func (w *world) create(ctx context.Context, s step) (result, error) {
	engine, err := w.engineFor(s)
	if err != nil {
		return nil, err
	}
	options := []sandbox.CreateOption{sandbox.WithEngine(engine), sandbox.WithName(text(s, "name"))}
	for _, option := range startOptions(s) {
		options = append(options, option)
	}
	for _, option := range makeOptions(s) {
		options = append(options, option)
	}
	box, err := sandbox.Create(ctx, options...)
	return w.keepMade(s, box, err)
}

func (w *world) open(ctx context.Context, s step) (result, error) {
	engine, err := w.engineFor(s)
	if err != nil {
		return nil, err
	}
	options := []sandbox.OpenOption{sandbox.WithEngine(engine)}
	for _, option := range startOptions(s) {
		options = append(options, option)
	}
	for _, option := range makeOptions(s) {
		options = append(options, option)
	}
	box, err := sandbox.Open(ctx, text(s, "name"), options...)
	return w.keepMade(s, box, err)
}

func (w *world) get(ctx context.Context, s step) (result, error) {
	box, err := sandbox.Get(ctx, text(s, "name"), sandbox.WithEngine(w.engine))
	if err != nil {
		return nil, err
	}
	return w.keep(text(s, "as"), box), nil
}

func (w *world) claim(ctx context.Context, s step) (result, error) {
	engine, err := w.engineFor(s)
	if err != nil {
		return nil, err
	}
	options := []sandbox.ClaimOption{sandbox.WithEngine(engine), sandbox.WithName(text(s, "name"))}
	for _, option := range startOptions(s) {
		options = append(options, option)
	}
	box, err := sandbox.Claim(ctx, text(s, "pool"), options...)
	return w.keepMade(s, box, err)
}

func (w *world) handle(ctx context.Context, s step) (result, error) {
	written, err := json.Marshal(w.box(s))
	if err != nil {
		return nil, err
	}
	box, err := sandbox.From(ctx, written, sandbox.WithEngine(w.engine))
	if err != nil {
		return nil, err
	}
	return w.keep(text(s, "as"), box), nil
}

func (w *world) list(ctx context.Context, s step) (result, error) {
	var selectors []string
	for key, value := range textMap(s, "labels") {
		selectors = append(selectors, key+"="+value)
	}
	names := []string{}
	for box, err := range sandbox.List(ctx, sandbox.WithEngine(w.engine), sandbox.WithLabelSelector(strings.Join(selectors, ","))) {
		if err != nil {
			return nil, err
		}
		names = append(names, box.Name)
	}
	return result{"names": names}, nil
}

func (w *world) info(ctx context.Context, s step) (result, error) {
	info, err := w.box(s).Info(ctx)
	if err != nil {
		return nil, err
	}
	return result{"state": info.State, "reason": info.Reason, "image": info.Image, "expires": !info.ShutdownAt.IsZero()}, nil
}

func (w *world) delete(ctx context.Context, s step) (result, error) {
	err := w.box(s).Delete(ctx)
	if err == nil && truth(s, "wait") {
		err = w.box(s).AwaitGone(ctx)
	}
	return result{}, err
}

func (w *world) suspend(ctx context.Context, s step) (result, error) {
	if truth(s, "hold") {
		return result{}, w.box(s).SuspendAndHold(ctx)
	}
	return result{}, w.box(s).Suspend(ctx)
}

func (w *world) resume(ctx context.Context, s step) (result, error) {
	return result{}, w.box(s).Resume(ctx)
}

func (w *world) fork(ctx context.Context, s step) (result, error) {
	results, err := w.box(s).Fork(ctx, int(number(s, "count")), sandbox.ForkOptions{Name: text(s, "name")})
	if err != nil {
		return nil, err
	}
	names := []any{}
	for i, each := range results {
		if each.Err != nil {
			return nil, each.Err
		}
		w.made = append(w.made, each.Sandbox)
		w.keep(fmt.Sprintf("%s%d", text(s, "as"), i+1), each.Sandbox)
		names = append(names, each.Sandbox.Name)
	}
	return result{"names": names}, nil
}

func (w *world) snapshot(ctx context.Context, s step) (result, error) {
	withMemory, given := s["withMemory"].(bool)
	info, err := w.box(s).Snapshot(ctx, sandbox.SnapshotOptions{Name: text(s, "name"), WithoutMemory: given && !withMemory})
	if err != nil {
		return nil, err
	}
	return result{"state": info.State, "hasMemory": info.MemorySizeBytes > 0}, nil
}

func (w *world) deleteSnapshot(ctx context.Context, s step) (result, error) {
	return result{}, sandbox.DeleteSnapshot(ctx, text(s, "name"), sandbox.WithEngine(w.engine))
}

func (w *world) setTimeout(ctx context.Context, s step) (result, error) {
	return result{}, w.box(s).SetTimeout(ctx, seconds(s, "ttlSeconds"))
}

func (w *world) extend(ctx context.Context, s step) (result, error) {
	before, err := w.box(s).Info(ctx)
	if err != nil {
		return nil, err
	}
	end, err := w.box(s).Extend(ctx, seconds(s, "bySeconds"))
	return result{"laterSeconds": int(end.Sub(before.ShutdownAt).Seconds())}, err
}

func (w *world) logs(ctx context.Context, s step) (result, error) {
	reader, err := w.box(s).Logs(ctx, sandbox.LogOptions{Follow: true})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var read strings.Builder
	for lines := bufio.NewScanner(reader); lines.Scan(); {
		read.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), text(s, "untilText")) {
			return result{"text": read.String()}, nil
		}
	}
	return nil, errors.New("the log ended: " + read.String())
}

func (w *world) awaitState(ctx context.Context, s step) (result, error) {
	info, err := w.box(s).WaitFor(ctx, text(s, "state"))
	if err != nil {
		return nil, err
	}
	return result{"state": info.State, "reason": info.Reason}, nil
}

func (w *world) metrics(ctx context.Context, s step) (result, error) {
	figures, err := w.box(s).Metrics(ctx)
	names := []string{}
	for name := range figures {
		names = append(names, name)
	}
	return result{"names": names}, err
}

func (w *world) ports(ctx context.Context, s step) (result, error) {
	open, err := w.box(s).Ports(ctx)
	ports, addresses := []any{}, []any{}
	for _, one := range open {
		ports = append(ports, one.Port)
		for _, address := range one.Addresses {
			addresses = append(addresses, address)
		}
	}
	return result{"ports": ports, "addresses": addresses}, err
}

func (w *world) startService(ctx context.Context, s step) (result, error) {
	return result{}, w.box(s).StartService(ctx, text(s, "name"), w.command(ctx, s).Args, sandbox.ServiceOptions{})
}

func (w *world) removeService(ctx context.Context, s step) (result, error) {
	return result{}, w.box(s).RemoveService(ctx, text(s, "name"))
}

// openLink uses the library's own client, which knows nothing of the engine.
func (w *world) openLink(ctx context.Context, s step) (result, error) {
	link, err := w.box(s).URL(ctx, int(number(s, "port")), time.Hour)
	if err != nil {
		return nil, err
	}
	response, err := http.Get(link)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return result{"status": response.StatusCode, "text": string(content)}, err
}

const extensionsPath = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/"

var kinds = map[string]string{"sandboxtemplates": "SandboxTemplate", "sandboxwarmpools": "SandboxWarmPool"}

func (w *world) apply(ctx context.Context, s step) (result, error) {
	made := s["object"].(map[string]any)
	made["apiVersion"], made["kind"] = "extensions.agents.x-k8s.io/v1beta1", kinds[text(s, "resource")]
	return result{}, w.engine.Request(ctx, http.MethodPost, extensionsPath+w.engine.Namespace()+"/"+text(s, "resource"), made, nil)
}

func (w *world) removeObject(ctx context.Context, s step) (result, error) {
	path := extensionsPath + w.engine.Namespace() + "/" + text(s, "resource") + "/" + text(s, "name")
	err := w.engine.Request(ctx, http.MethodDelete, path, nil, nil)
	if sandbox.CodeOf(err) == errorcode.NotFound {
		err = nil
	}
	return result{}, err
}
