package gosdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	clientspdy "k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// tunnel is a forwarder of client-go over SPDY/3.1.
type tunnel struct {
	ports []portforward.ForwardedPort
	stop  chan struct{}
	ended chan error
}

// dialer upgrades to SPDY/3.1. The SDK pings every five seconds; here it is often enough to be seen in a short test.
func (c *cluster) dialer(t *testing.T, pod string) httpstream.Dialer {
	t.Helper()
	tls, err := rest.TLSConfigFor(c.config)
	must(t, err)
	upgrader, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{TLS: tls, PingPeriod: 20 * time.Millisecond})
	must(t, err)
	wrapped, err := rest.HTTPWrappersForConfig(c.config, upgrader)
	must(t, err)
	url := c.core.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	return clientspdy.NewDialerForStreaming(clientspdy.NewUpgraderForStreaming(upgrader), &http.Client{Transport: wrapped}, http.MethodPost, url)
}

// forward opens a tunnel to ports of a Pod.
func (c *cluster) forward(t *testing.T, pod string, ports ...string) *tunnel {
	t.Helper()
	forwarded := &tunnel{stop: make(chan struct{}), ended: make(chan error, 1)}
	ready := make(chan struct{})
	forwarder, err := portforward.NewForStreaming(c.dialer(t, pod), ports, forwarded.stop, ready, io.Discard, io.Discard)
	must(t, err)
	go func() { forwarded.ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-forwarded.ended:
		t.Fatalf("no tunnel to %s: %v", pod, err)
	case <-time.After(waitLimit):
		t.Fatalf("no tunnel to %s in time", pod)
	}
	forwarded.ports, err = forwarder.GetPorts()
	must(t, err)
	t.Cleanup(forwarded.close)
	return forwarded
}

func (f *tunnel) close() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
}

func (f *tunnel) address(index int) string {
	return fmt.Sprintf("127.0.0.1:%d", f.ports[index].Local)
}

// routerPod is found as the SDK finds it: by the slices of the Service in the sandbox's own namespace.
func (c *cluster) routerPod(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for ctx.Err() == nil {
		list, err := c.core.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=sandbox-router-svc"})
		must(t, err)
		for _, slice := range list.Items {
			for _, endpoint := range slice.Endpoints {
				if ready := endpoint.Conditions.Ready; (ready == nil || *ready) && endpoint.TargetRef != nil && endpoint.TargetRef.Name != "" {
					return endpoint.TargetRef.Name
				}
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("no endpoint of sandbox-router-svc")
	return ""
}

// The default of the SDK: a tunnel to the router's Pod, everything through it, and again after it was closed.
func TestRouterTunnel(t *testing.T) {
	c := connect(t)
	b := c.open(t)
	for _, turn := range []string{"Open", "Disconnect and Open"} {
		t.Run(turn, func(t *testing.T) {
			forwarded := c.forward(t, c.routerPod(t), "0:8080")
			caller := &runtimeCaller{box: b, base: "http://" + forwarded.address(0)}
			caller.everything(t)
			together(t, 8, func(i int) {
				if stdout, _ := caller.run(t, fmt.Sprintf("echo %d", i)); stdout != fmt.Sprintf("%d\n", i) {
					t.Errorf("run %d: %q", i, stdout)
				}
			})
			if status, _ := plain(t, caller.base+"/healthz"); status != http.StatusOK {
				t.Errorf("/healthz: %d", status)
			}
			forwarded.close()
			if err := <-forwarded.ended; err != nil {
				t.Errorf("the tunnel ended with %v", err)
			}
		})
	}
}

// A tunnel to the sandbox's own Pod carries both ports of the daemon on one connection.
func TestDaemonTunnel(t *testing.T) {
	c := connect(t)
	b := c.open(t)
	forwarded := c.forward(t, b.pod, "0:8080", "0:9090")
	files := "http://" + forwarded.address(0) + "/v1/files/"
	content := strings.Repeat("0123456789", 100_000)
	for _, step := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{http.MethodPut, "go%2Fone.txt", content, http.StatusNoContent, ""},
		{http.MethodGet, "go%2Fone.txt", "", http.StatusOK, content},
		{http.MethodHead, "go%2Fone.txt", "", http.StatusOK, ""},
		{http.MethodDelete, "go", "", http.StatusConflict, ""},
		{http.MethodDelete, "go?recursive=true", "", http.StatusNoContent, ""},
		{http.MethodHead, "go", "", http.StatusNotFound, ""},
	} {
		status, answer := request(t, step.method, files+step.path, step.body)
		if status != step.status || (step.answer != "" && answer != step.answer) {
			t.Errorf("%s %s: %d, %d bytes", step.method, step.path, status, len(answer))
		}
	}
	together(t, 4, func(i int) {
		reply := execute(t, forwarded.address(1), "/bin/sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i))
		if reply.stdout != fmt.Sprintf("%d\n", i) || reply.code != i {
			t.Errorf("execute %d: %+v", i, reply)
		}
	})
}

// A port without a listener is reported on the error stream, in the words that client-go shows its users, and ends the tunnel.
func TestTunnelToNobody(t *testing.T) {
	c := connect(t)
	b := c.open(t)
	connection, protocol, err := c.dialer(t, b.pod).Dial(portforward.PortForwardProtocolV1Name)
	must(t, err)
	defer connection.Close()
	if protocol != portforward.PortForwardProtocolV1Name {
		t.Errorf("protocol %q", protocol)
	}
	headers := http.Header{}
	headers.Set("port", "8999")
	headers.Set("requestID", "7")
	headers.Set("streamType", "error")
	failures, err := connection.CreateStream(headers)
	must(t, err)
	must(t, failures.Close())
	headers.Set("streamType", "data")
	_, err = connection.CreateStream(headers)
	must(t, err)
	said, err := io.ReadAll(failures)
	must(t, err)
	if !strings.Contains(string(said), "8999") {
		t.Errorf("the error stream said %q", said)
	}
	forwarded := c.forward(t, b.pod, "0:8999")
	if _, err := http.Get("http://" + forwarded.address(0)); err == nil {
		t.Error("port 8999 answers, where nothing listens")
	}
	if err := <-forwarded.ended; !errors.Is(err, portforward.ErrLostConnectionToPod) {
		t.Errorf("the tunnel ended with %v", err)
	}
}

func plain(t *testing.T, url string) (int, string) {
	t.Helper()
	return request(t, http.MethodGet, url, "")
}

func request(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	asked, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	response, err := http.DefaultClient.Do(asked)
	must(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(answer)
}

// together does a thing many times at once.
func together(t *testing.T, times int, work func(int)) {
	t.Helper()
	var group sync.WaitGroup
	for i := range times {
		group.Go(func() { work(i) })
	}
	group.Wait()
}
