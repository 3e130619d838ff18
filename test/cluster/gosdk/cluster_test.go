// Package gosdk replays, with client-go, the requests of the published Go SDK (0.5 line) against a running engine. The engine
// is started by test/published/go-sdk.root.test.ts, which also says in the environment where it is.
package gosdk

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// waitLimit is the limit of each wait, long enough for a busy machine; every wait ends with its event.
const waitLimit = 60 * time.Second

const namespace = "default"

var (
	claims    = schema.GroupVersionResource{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxclaims"}
	sandboxes = schema.GroupVersionResource{Group: "agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxes"}
	gateways  = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
)

// cluster is what the SDK builds from a kubeconfig.
type cluster struct {
	config  *rest.Config
	dynamic dynamic.Interface
	core    kubernetes.Interface
}

func connect(t *testing.T) *cluster {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", setting(t, "KUBECONFIG"))
	must(t, err)
	core := rest.CopyConfig(config)
	// As typed clients ask: protobuf if it can be had.
	core.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	core.ContentType = "application/vnd.kubernetes.protobuf"
	c := &cluster{config: config}
	c.dynamic, err = dynamic.NewForConfig(config)
	must(t, err)
	c.core, err = kubernetes.NewForConfig(core)
	must(t, err)
	return c
}

// setting is a variable of the environment that the caller of these tests sets.
func setting(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: run this by test/published/go-sdk.root.test.ts", name)
	}
	return value
}

// box is a claimed sandbox, as the SDK knows it after Open.
type box struct {
	claim, sandbox, pod, ip string
}

// open is the SDK's Open without its transport: create, resolve the name, wait for Ready.
func (c *cluster) open(t *testing.T) *box {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	claim := c.create(ctx, t, setting(t, "POOL"))
	t.Cleanup(func() { _ = c.delete(context.Background(), claim) })
	name := c.resolve(ctx, t, claim)
	return c.ready(ctx, t, claim, name)
}

// claimBody is byte for byte what the typed client of the SDK writes.
const claimBody = `{"kind":"SandboxClaim","apiVersion":"extensions.agents.x-k8s.io/v1beta1","metadata":{"generateName":"sandbox-claim-","creationTimestamp":null,"labels":{"agents.x-k8s.io/created-by":"go-client"},"annotations":{"agents.x-k8s.io/client-first-requested-at":%q}},"spec":{"warmPoolRef":{"name":%q},"additionalPodMetadata":{}},"status":{}}`

func (c *cluster) create(ctx context.Context, t *testing.T, pool string) string {
	t.Helper()
	body := fmt.Sprintf(claimBody, time.Now().UTC().Format(time.RFC3339Nano), pool)
	path := "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/" + namespace + "/sandboxclaims"
	raw, err := c.core.Discovery().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(body)).DoRaw(ctx)
	must(t, err)
	var created struct{ Metadata metav1.ObjectMeta }
	must(t, json.Unmarshal(raw, &created))
	if created.Metadata.Name == "" || created.Metadata.Labels["agents.x-k8s.io/created-by"] != "go-client" {
		t.Fatalf("created claim: %s", raw)
	}
	return created.Metadata.Name
}

// resolve reads the claim, and watches it from no version and without a limit while it is unbound.
func (c *cluster) resolve(ctx context.Context, t *testing.T, claim string) string {
	t.Helper()
	found, err := c.dynamic.Resource(claims).Namespace(namespace).Get(ctx, claim, metav1.GetOptions{})
	must(t, err)
	if name := boundTo(found); name != "" {
		return name
	}
	events, err := c.dynamic.Resource(claims).Namespace(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + claim})
	must(t, err)
	defer events.Stop()
	for event := range events.ResultChan() {
		if name := boundTo(object(t, event)); name != "" {
			return name
		}
	}
	t.Fatalf("claim %s: the watch ended before it was bound: %v", claim, ctx.Err())
	return ""
}

// ready lists the Sandbox, and watches it from the list's version until it is Ready.
func (c *cluster) ready(ctx context.Context, t *testing.T, claim, name string) *box {
	t.Helper()
	selector := "metadata.name=" + name
	list, err := c.dynamic.Resource(sandboxes).Namespace(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
	must(t, err)
	for i := range list.Items {
		if isReady(&list.Items[i]) {
			return describe(claim, &list.Items[i])
		}
	}
	options := metav1.ListOptions{FieldSelector: selector, ResourceVersion: list.GetResourceVersion()}
	events, err := c.dynamic.Resource(sandboxes).Namespace(namespace).Watch(ctx, options)
	must(t, err)
	defer events.Stop()
	for event := range events.ResultChan() {
		if found := object(t, event); isReady(found) {
			return describe(claim, found)
		}
	}
	t.Fatalf("sandbox %s: the watch ended before it was Ready: %v", name, ctx.Err())
	return nil
}

// delete sends DeleteOptions as a body, as typed clients do.
func (c *cluster) delete(ctx context.Context, claim string) error {
	return c.dynamic.Resource(claims).Namespace(namespace).Delete(ctx, claim, metav1.DeleteOptions{})
}

func describe(claim string, sandbox *unstructured.Unstructured) *box {
	b := &box{claim: claim, sandbox: sandbox.GetName(), pod: sandbox.GetName()}
	if pod := sandbox.GetAnnotations()["agents.x-k8s.io/pod-name"]; pod != "" {
		b.pod = pod
	}
	ips, _, _ := unstructured.NestedStringSlice(sandbox.Object, "status", "podIPs")
	if len(ips) > 0 {
		b.ip = ips[0]
	}
	return b
}

func boundTo(claim *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(claim.Object, "status", "sandbox", "name")
	return name
}

func isReady(sandbox *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(sandbox.Object, "status", "conditions")
	for _, condition := range conditions {
		fields, _ := condition.(map[string]any)
		if fields["type"] == "Ready" && fields["status"] == "True" {
			return true
		}
	}
	return false
}

// object is an event's object; client-go cannot decode one without kind and apiVersion.
func object(t *testing.T, event watch.Event) *unstructured.Unstructured {
	t.Helper()
	found, ok := event.Object.(*unstructured.Unstructured)
	if event.Type == watch.Error || !ok {
		t.Fatalf("event %s: %v", event.Type, event.Object)
	}
	return found
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
